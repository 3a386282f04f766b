#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dynamiccl {

/// What a profile says about one namespace; what it leaves to the engine is nullopt and unchecked.
struct NamespacePromise {
  std::string name;  ///< "net", "ipc", "uts", "pid", "mnt", "user", or "shm" for the /dev/shm mount
  std::optional<bool> with_host;      ///< the ranks are in the host's own
  std::optional<bool> between_ranks;  ///< all ranks of one host are in the same; false: shared
                                      ///< exactly by the ranks of one container
};

/// A profile as a launch can be compared with: made by promise_of(EnvironmentProfile), checked by
/// check_promise().
struct ProfilePromise {
  std::string environment;  ///< the profile's name, for messages
  /// Runtimes that keep the promise: {"none"}, {"singularity"}, {"docker", "podman"}.
  std::vector<std::string> runtimes;
  int ranks_per_container = 0;  ///< 0: all ranks in one container
  std::vector<NamespacePromise> namespaces;
  /// The profile itself says which cores the ranks get: ranks that share one are what it asks for.
  bool binding_is_its_own = false;

  /// Distinct containers that `ranks` ranks of one host run in; 0 on bare metal.
  [[nodiscard]] int containers(int ranks) const {
    if (runtimes == std::vector<std::string>{"none"}) return 0;
    if (ranks_per_container <= 0) return 1;
    return (ranks + ranks_per_container - 1) / ranks_per_container;
  }
};

}  // namespace dynamiccl
