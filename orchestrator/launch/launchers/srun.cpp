#include <fmt/format.h>

#include "core/vocabulary/error.hpp"
#include "orchestrator/launch/launcher.hpp"

namespace dynamiccl {
namespace {

/// The process management that a library was built for: by another one its ranks start as so many
/// jobs of one rank, with exit code 0.
const char* process_management(Backend backend) {
  switch (backend) {
    case Backend::openmpi:
    case Backend::cuda_aware_mpi:
      return "pmix";
    case Backend::mpich:
      return "pmi2";
    case Backend::gloo:
    case Backend::nccl:
      return "none";
  }
  throw Error(ErrorKind::bug, fmt::format("backend {} under srun", name_of(backend)));
}

bool is_open_mpi(Backend backend) {
  return backend == Backend::openmpi || backend == Backend::cuda_aware_mpi;
}

std::map<std::string, std::string> rank_environment(const LaunchRequest& request) {
  auto environment = request.environment;
  if (!is_open_mpi(request.backend)) return environment;
  for (const auto& [name, value] : request.mca) environment["OMPI_MCA_" + name] = value;
  // As by its own launcher: no environment is bound unless it says so.
  environment.try_emplace("OMPI_MCA_hwloc_base_binding_policy", "none");
  return environment;
}

}  // namespace

std::vector<Command> build_srun(const LaunchRequest& request) {
  DYN_ASSERT(!request.shape.step_prefix.empty(), "srun needs a place for its step");
  const std::string management = process_management(request.backend);
  Command command;
  command.environment = request.shape.launcher_environment;
  auto& argv = command.argv;
  argv = request.shape.step_prefix;
  argv.push_back("--mpi=" + management);
  argv.emplace_back("env");
  for (const auto& [name, value] : rank_environment(request))
    argv.push_back(fmt::format("{}={}", name, value));
  if (management == "none")
    argv.insert(
        argv.end(),
        {"sh", "-c", fmt::format("export {}=$SLURM_PROCID; exec \"$@\"", kRankVariable), "sh"});
  argv.insert(argv.end(), request.shape.rank_prefix.begin(), request.shape.rank_prefix.end());
  argv.insert(argv.end(), request.worker.begin(), request.worker.end());
  return {command};
}

}  // namespace dynamiccl
