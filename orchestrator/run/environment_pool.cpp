#include "orchestrator/run/environment_pool.hpp"

#include "core/vocabulary/error.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

EnvironmentPool::EnvironmentPool(std::string run_id, std::vector<std::string> binds,
                                 std::shared_ptr<ClusterSession> cluster,
                                 std::vector<std::string> programs)
    : run_id_(std::move(run_id)),
      binds_(std::move(binds)),
      cluster_(std::move(cluster)),
      programs_(std::move(programs)) {}

EnvironmentPool::~EnvironmentPool() { stop_all(); }

Environment& EnvironmentPool::get(const EnvironmentProfile& profile, int ranks) {
  auto& environment = running_[{profile.name, ranks}];
  if (environment == nullptr)
    environment = start_environment(
        profile, {run_id_, ranks, binds_, cluster_, programs_, preparation_progress()});
  return *environment;
}

std::string EnvironmentPool::drop(const EnvironmentProfile& profile, int ranks) {
  const auto found = running_.find({profile.name, ranks});
  if (found == running_.end()) return "";
  const auto environment = std::move(found->second);
  running_.erase(found);
  if (environment == nullptr) return "";
  try {
    environment->stop();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> EnvironmentPool::stop_all() {
  std::vector<std::string> problems;
  for (auto& [key, environment] : running_) {
    if (environment == nullptr) continue;
    try {
      environment->stop();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
  running_.clear();
  return problems;
}

}  // namespace dynamiccl
