#include <fmt/format.h>

#include "core/text.hpp"
#include "orchestrator/launcher.hpp"

namespace dynamiccl {
namespace {

void add_hosts(std::vector<std::string>& argv, const LaunchRequest& request) {
  std::vector<std::string> hosts;
  for (const auto& host : request.shape.hosts)
    hosts.push_back(fmt::format("{}:{}", host.name, host.slots));
  argv.insert(argv.end(), {"--mca", "plm_rsh_agent", request.shape.launch_agent,
                           // Daemons cannot start further ones: the agent is the host's.
                           "--mca", "plm_rsh_no_tree_spawn", "1", "--host", join(hosts, ",")});
}

}  // namespace

std::vector<Command> build_openmpi(const LaunchRequest& request) {
  const LaunchShape& shape = request.shape;
  Command command;
  command.environment = shape.launcher_environment;
  auto& argv = command.argv;
  argv = shape.launcher_prefix;
  argv.emplace_back("mpirun.openmpi");
  if (request.as_root) argv.emplace_back("--allow-run-as-root");
  // Each container's daemon binds its first rank to core 0, so bound ranks would share one core; no
  // environment is bound, so that binding is not what is compared.
  argv.insert(argv.end(), {"--bind-to", "none"});
  auto mca = request.mca;
  const bool many_hosts = !shape.launch_agent.empty();
  if (!many_hosts && !mca.contains("btl_tcp_if_include") && !mca.contains("btl_tcp_if_exclude")) {
    // On one machine TCP is only asked for by a knob; over idle container bridges it would hang.
    mca["btl_tcp_if_include"] = "lo";
  }
  if (request.ranks > request.cores) {
    argv.emplace_back("--oversubscribe");
    // Daemons in separate containers each see one rank and would let it spin.
    mca.try_emplace("mpi_yield_when_idle", "1");
  }
  if (many_hosts) add_hosts(argv, request);
  for (const auto& [name, value] : mca) argv.insert(argv.end(), {"--mca", name, value});
  for (const auto& [name, value] : request.environment)
    argv.insert(argv.end(), {"-x", fmt::format("{}={}", name, value)});
  argv.insert(argv.end(), {"-n", std::to_string(request.ranks)});
  argv.insert(argv.end(), shape.rank_prefix.begin(), shape.rank_prefix.end());
  argv.insert(argv.end(), request.worker.begin(), request.worker.end());
  return {command};
}

}  // namespace dynamiccl
