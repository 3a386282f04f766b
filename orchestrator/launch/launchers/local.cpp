#include "core/vocabulary/error.hpp"
#include "orchestrator/launch/launcher.hpp"

namespace dynamiccl {

std::vector<Command> build_local(const LaunchRequest& request) {
  DYN_ASSERT(request.wrap_rank != nullptr, "the local launcher starts ranks through wrap_rank");
  std::vector<Command> commands;
  for (int rank = 0; rank < request.ranks; ++rank) {
    auto environment = request.environment;
    environment[std::string(kRankVariable)] = std::to_string(rank);
    // NCCL tells hosts apart by this name, and two ranks of one host may not use one GPU.
    if (environment.contains("DYNAMICCL_SHARED_GPUS"))
      environment["NCCL_HOSTID"] = "rank-" + std::to_string(rank);
    Command command;
    command.argv = request.wrap_rank(rank, request.worker, environment);
    command.environment = request.shape.launcher_environment;
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace dynamiccl
