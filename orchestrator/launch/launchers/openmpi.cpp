#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "containers/paths.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/launcher.hpp"

namespace dynamiccl {
namespace {

void add_hosts(std::vector<std::string>& argv, const LaunchRequest& request) {
  std::vector<std::string> hosts;
  for (const auto& host : request.shape.hosts)
    hosts.push_back(fmt::format("{}:{}", host.name, host.slots));
  // Named, because a machine's environment may choose another starter ("isolated" cannot leave its
  // host and then says that all nodes are filled).
  const bool by_agent = !request.shape.launch_agent.empty();
  // The hosts are containers, of which the allocation around knows nothing.
  if (by_agent && !request.shape.step_prefix.empty())
    argv.insert(argv.end(), {"--mca", "ras", "^slurm"});
  if (!by_agent)
    argv.insert(argv.end(), {"--mca", "plm", "slurm"});
  else
    argv.insert(argv.end(),
                {"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", request.shape.launch_agent,
                 // Daemons cannot start further ones: the agent is the host's.
                 "--mca", "plm_rsh_no_tree_spawn", "1"});
  // Filling the named slots needs no look at the containers' topologies.
  argv.insert(argv.end(), {"--host", join(hosts, ","), "--map-by", "slot:OVERSUBSCRIBE"});
}

/// Open MPI's place where it was moved to is given to it by OPAL_PREFIX.
std::vector<std::string> relocated(const std::string& prefix) {
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string rest = before != nullptr && *before != '\0' ? fmt::format(":{}", before) : "";
  return {"env", "OPAL_PREFIX=" + prefix, fmt::format("LD_LIBRARY_PATH={}/lib{}", prefix, rest)};
}

}  // namespace

std::string cuda_openmpi_prefix() {
  const char* named = std::getenv("DYNAMICCL_CUDA_MPI");
  for (const std::string& prefix :
       {std::string(named != nullptr ? named : ""), cache_folder() + "/openmpi-cuda",
        std::string("/opt/dynamiccl/openmpi-cuda")}) {
    if (!prefix.empty() && access((prefix + "/bin/mpirun").c_str(), X_OK) == 0) return prefix;
  }
  return "";
}

std::vector<Command> build_openmpi(const LaunchRequest& request) {
  const LaunchShape& shape = request.shape;
  Command command;
  command.environment = shape.launcher_environment;
  auto& argv = command.argv;
  argv = shape.launcher_prefix;
  const std::string own =
      backend_facts(request.backend).on_gpu ? cuda_openmpi_prefix() : std::string();
  const auto place = own.empty() ? std::vector<std::string>() : relocated(own);
  argv.insert(argv.end(), place.begin(), place.end());
  if (own.empty())
    argv.emplace_back("mpirun.openmpi");
  else
    argv.insert(argv.end(), {own + "/bin/mpirun", "--prefix", own});
  if (request.as_root) argv.emplace_back("--allow-run-as-root");
  // Each container's daemon binds its first rank to core 0, so bound ranks would share one core; no
  // environment is bound unless it says so, so that binding is not what is compared.
  auto mca = request.mca;
  const auto binding = mca.extract("hwloc_base_binding_policy");
  argv.insert(argv.end(), {"--bind-to", binding.empty() ? "none" : binding.mapped()});
  const bool many_hosts = !shape.launch_agent.empty() || shape.slurm_daemons;
  if (!many_hosts && !mca.contains("btl_tcp_if_include") && !mca.contains("btl_tcp_if_exclude")) {
    // On one machine TCP is only asked for by a knob; over idle container bridges it would hang.
    mca["btl_tcp_if_include"] = "lo";
  }
  // Nothing is started elsewhere, but an image without ssh makes mpirun give up before it starts.
  if (!many_hosts) mca.try_emplace("plm_rsh_agent", "/bin/true");
  if (request.ranks > request.cores) {
    if (!many_hosts) argv.emplace_back("--oversubscribe");
    // Daemons in separate containers each see one rank and would let it spin.
    mca.try_emplace("mpi_yield_when_idle", "1");
  }
  if (many_hosts) add_hosts(argv, request);
  if (shape.dealt) mca.try_emplace("rmaps_base_ranking_policy", "node");
  for (const auto& [name, value] : mca) argv.insert(argv.end(), {"--mca", name, value});
  for (const auto& [name, value] : request.environment)
    argv.insert(argv.end(), {"-x", fmt::format("{}={}", name, value)});
  for (const auto& name : request.inherited) argv.insert(argv.end(), {"-x", name});
  argv.insert(argv.end(), {"-n", std::to_string(request.ranks)});
  argv.insert(argv.end(), shape.rank_prefix.begin(), shape.rank_prefix.end());
  // Again for each rank: what enters a container drops the library path.
  argv.insert(argv.end(), place.begin(), place.end());
  argv.insert(argv.end(), request.worker.begin(), request.worker.end());
  return {command};
}

}  // namespace dynamiccl
