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
    if (environment.contains("DYNAMICCL_SHARED_GPUS")) {
      environment["NCCL_HOSTID"] = "rank-" + std::to_string(rank);
      // Left to itself NCCL may take the link-local address of a container's bridge, over which
      // the ranks do not reach each other.
      if (!request.shape.interface.empty())
        environment.try_emplace("NCCL_SOCKET_IFNAME", request.shape.interface);
    }
    Command command;
    command.argv = request.wrap_rank(rank, request.worker, environment);
    command.environment = request.shape.launcher_environment;
    command.is_rank = true;
    commands.push_back(std::move(command));
  }
  return commands;
}

}  // namespace dynamiccl
