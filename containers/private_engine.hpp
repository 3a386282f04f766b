#pragma once

#include <memory>
#include <string>
#include <vector>

#include "containers/processes.hpp"

namespace dynamiccl {

/// Where a dockerd of our own lives. Its path must be short: socket paths end at 107 bytes.
struct PrivateEngineOptions {
  std::string folder;
  /// Before dockerd's own argv, e.g. {"unshare", "--net"} to keep it off the machine's network.
  std::vector<std::string> prefix;
};

/// cache_folder()/docker; where none runs there and one of another cache does in this network
/// namespace, that one, to be shared.
PrivateEngineOptions default_private_engine();

std::string private_engine_socket(const PrivateEngineOptions& options);

/// A share in the private engine. The first share starts dockerd, the last one to go ends it by its
/// pid, leaves nothing mounted, and takes back what dockerd has changed of the machine's network
/// (network_traces.hpp); shares of other processes count, and a killed process loses its share by
/// itself (flock).
class EngineLease {
 public:
  /// Starts dockerd when it does not answer (it takes over what a dead one has left), waits for it.
  /// @param interrupted asked while waiting; true ends the engine again
  /// @throws Error(environment) with the last lines of its log, or when interrupted
  explicit EngineLease(PrivateEngineOptions options, bool (*interrupted)() = nullptr);
  ~EngineLease();
  EngineLease(const EngineLease&) = delete;
  EngineLease& operator=(const EngineLease&) = delete;
  [[nodiscard]] std::string socket() const { return private_engine_socket(options_); }
  /// Starts dockerd again where it has died since. Parameter and error as the constructor's.
  void bring_back(bool (*interrupted)() = nullptr);

 private:
  PrivateEngineOptions options_;
  int users_lock_ = -1;
};

/// Holds a share of the default private engine until this process ends: between two environments
/// the engine would otherwise stop and start again. Parameter and error as EngineLease's.
void hold_private_engine(bool (*interrupted)() = nullptr);

/// Ends the engine when nobody holds a share, and clears what a dead one has left.
/// @returns one line per thing removed
std::vector<std::string> stop_abandoned_engine(const PrivateEngineOptions& options);

/// Whether a process has the engine's folder on its command line: dockerd, and what it has
/// started.
bool belongs_to_engine(const ProcessInfo& process, const PrivateEngineOptions& options);

/// The folder of the private engine whose dockerd a process is, of any cache of this user's; "" for
/// other processes.
std::string folder_of_engine(const ProcessInfo& process);

/// True while any process of the engine (dockerd, containerd, shims) is there.
bool engine_running(const PrivateEngineOptions& options);

}  // namespace dynamiccl
