#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "profiles/detect/probes/cma_test.hpp"
#include "profiles/detect/probes/known.hpp"
#include "profiles/detect/probes/meeting_folder.hpp"

namespace dynamiccl {

/// A network interface with its addresses, as getifaddrs tells them.
struct InterfaceAddresses {
  std::string name;
  int index = 0;
  bool up = false;
  std::vector<std::string> addresses;  ///< "172.30.0.10/24", "fe80::1/64"
};

/// The file system that holds a path, as statvfs tells it.
struct FilesystemFacts {
  std::uint64_t device = 0;  ///< st_dev: the same number in two containers is the same memory
  Bytes size;
  Bytes free;
  bool writable = false;
  std::uint64_t inode = 0;  ///< st_ino: with the device, the same folder
};

/// What only system calls can tell, of the calling process. The base class knows nothing: a
/// recorded tree has no live system.
class LiveSystem {
 public:
  virtual ~LiveSystem() = default;
  /// process_vm_readv on a child (no exec, no SIGCHLD, its memory shared, so it costs
  /// microseconds).
  [[nodiscard]] virtual Known<CmaTest> cma() const;
  [[nodiscard]] virtual Known<FilesystemFacts> filesystem(const std::string& path) const;
  /// A socket file is made in the folder and removed.
  [[nodiscard]] virtual Known<MeetingFolder> meeting_folder(const std::string& path) const;
  [[nodiscard]] virtual Known<std::vector<InterfaceAddresses>> interfaces() const;
  [[nodiscard]] virtual Known<std::string> libc_version() const;
  [[nodiscard]] virtual Known<std::vector<std::pair<std::string, std::string>>> environment() const;
  /// GPUs as NVML sees them: {driver_version, devices: [...], p2p: [[...]]}, see nvml.cpp.
  [[nodiscard]] virtual Known<nlohmann::json> gpus() const;
};

using GpuReader = Known<nlohmann::json> (*)();

/// The machine this process runs on. `gpu_reader` may be null (static programs cannot load NVML).
std::unique_ptr<LiveSystem> make_live_system(GpuReader gpu_reader);

}  // namespace dynamiccl
