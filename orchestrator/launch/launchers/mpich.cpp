#include <fmt/format.h>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/launcher.hpp"

namespace dynamiccl {
namespace {

/// Hydra deals ranks over all hosts in turn, whatever room they have (-ppn takes a host's slots'
/// place): others than these would not be where the plan says.
void require_alike(const LaunchRequest& request) {
  const auto& hosts = request.shape.hosts;
  const int ranks = request.ranks;
  const int count = static_cast<int>(hosts.size());
  for (int i = 0; i < count; ++i) {
    const HostSlot& host = hosts[static_cast<std::size_t>(i)];
    const int share = ranks / count + (i < ranks % count ? 1 : 0);
    if (host.slots == share) continue;
    throw Error(ErrorKind::input,
                fmt::format("cluster.dealt with MPICH, whose launcher deals ranks to hosts of any "
                            "room alike: {} would get {} of {} ranks and is to have {}; give each "
                            "host the same number of slots, or leave out dealt",
                            host.name, share, ranks, host.slots));
  }
}

}  // namespace

std::vector<Command> build_mpich(const LaunchRequest& request) {
  const LaunchShape& shape = request.shape;
  Command command;
  command.environment = shape.launcher_environment;
  auto& argv = command.argv;
  argv = shape.launcher_prefix;
  argv.emplace_back("mpirun.mpich");
  if (!shape.launch_agent.empty() || shape.slurm_daemons) {
    std::vector<std::string> hosts;
    for (const auto& host : shape.hosts)
      hosts.push_back(fmt::format("{}:{}", host.name, host.slots));
    const bool by_agent = !shape.launch_agent.empty();
    argv.insert(argv.end(), {"-launcher", by_agent ? "ssh" : "slurm"});
    if (by_agent) argv.insert(argv.end(), {"-launcher-exec", shape.launch_agent});
    // The hosts are containers, of which the allocation around knows nothing.
    if (by_agent && !shape.step_prefix.empty()) argv.insert(argv.end(), {"-rmk", "user"});
    argv.insert(argv.end(), {"-hosts", join(hosts, ",")});
    if (shape.dealt) {
      require_alike(request);
      argv.insert(argv.end(), {"-ppn", "1"});
    }
    // The proxies call back: containers cannot resolve the machine's own name.
    if (!shape.host_address.empty()) argv.insert(argv.end(), {"-localhost", shape.host_address});
    // The current folder need not exist inside.
    argv.insert(argv.end(), {"-wdir", "/"});
  }
  for (const auto& [name, value] : request.environment)
    argv.insert(argv.end(), {"-genv", name, value});
  argv.insert(argv.end(), {"-n", std::to_string(request.ranks)});
  argv.insert(argv.end(), shape.rank_prefix.begin(), shape.rank_prefix.end());
  argv.insert(argv.end(), request.worker.begin(), request.worker.end());
  return {command};
}

}  // namespace dynamiccl
