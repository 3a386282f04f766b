#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "workers/data/data.hpp"

namespace dynamiccl {

/// One GPU as a rank uses it: memory, copies, input data and their verification. Calls block until
/// the work is done; the thread that opened it uses it. Every call throws Error(environment) when
/// the driver reports a failure.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Makes it the calling thread's GPU too.
  virtual void enter_thread() {}
  /// "NVIDIA H200", for people.
  [[nodiscard]] virtual std::string name() const = 0;
  /// "0000:4b:00.0": tells GPUs apart whatever a process sees of them.
  [[nodiscard]] virtual std::string pci() const = 0;

  /// Multiprocessors, which kernels share; 0: not known.
  [[nodiscard]] virtual int multiprocessors() const { return 0; }

  /// Memory of the GPU, zeroed. @throws Error(environment) that says how much is free
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// Page-locked host memory, which the GPU copies from and to without a detour.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) = 0;

  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;

  /// As DataSource::fill, verify and poison in measure/data.hpp, on the GPU's memory and by the
  /// GPU: every element is compared, none travels.
  virtual void fill(const DataSource& source, void* out, int rank, std::uint64_t first,
                    std::size_t count) = 0;
  virtual DataVerdict verify(const DataSource& source, const void* out,
                             const std::vector<ExpectedPart>& parts) = 0;
  virtual void poison(void* out, std::size_t bytes) = 0;

  /// Multiplies matrices on all of the GPU for so long, and the end of one product more.
  virtual void multiply_for(std::chrono::milliseconds time) = 0;
};

/// Opens the GPU with this number among those the process sees; a process that sees one takes it
/// under any number, as its container or CUDA_VISIBLE_DEVICES chose it.
/// @throws Error(environment) saying why there is none
std::unique_ptr<Device> open_device(int index);
/// The GPU at this place on the bus, as Device::pci() says it.
/// @throws Error(environment) saying why this process has none there
std::unique_ptr<Device> open_device_at(const std::string& pci);

/// The GPU that the plan gives a rank; `otherwise` where it says nothing of this rank.
inline int planned_gpu(const std::vector<int>& gpu_of_rank, int rank, int otherwise) {
  const auto own = static_cast<std::size_t>(rank);
  return own < gpu_of_rank.size() ? gpu_of_rank[own] : otherwise;
}

}  // namespace dynamiccl
