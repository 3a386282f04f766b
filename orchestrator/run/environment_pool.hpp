#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "containers/start/environment.hpp"

namespace dynamiccl {

/// The environments that are up, one per (profile, ranks), so that the groups of a block can be
/// started in any order. stop_all() (also by the destructor) leaves none.
class EnvironmentPool {
 public:
  EnvironmentPool(std::string run_id, std::vector<std::string> binds,
                  std::shared_ptr<ClusterSession> cluster, std::vector<std::string> programs);
  ~EnvironmentPool();
  EnvironmentPool(const EnvironmentPool&) = delete;
  EnvironmentPool& operator=(const EnvironmentPool&) = delete;

  /// @throws Error(environment) when it does not start
  Environment& get(const EnvironmentProfile& profile, int ranks);
  /// Stops one: after a launch that failed in it, the next gets a fresh one.
  /// @returns what could not be removed, "" = all was
  std::string drop(const EnvironmentProfile& profile, int ranks);
  /// Stops all and forgets them. @returns what could not be removed, one sentence each
  std::vector<std::string> stop_all();

 private:
  std::string run_id_;
  std::vector<std::string> binds_;
  std::shared_ptr<ClusterSession> cluster_;
  std::vector<std::string> programs_;
  std::map<std::pair<std::string, int>, std::unique_ptr<Environment>> running_;
};

}  // namespace dynamiccl
