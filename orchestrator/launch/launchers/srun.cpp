#include <fmt/format.h>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/launcher.hpp"

namespace dynamiccl {
namespace {

std::map<std::string, std::string> rank_environment(const LaunchRequest& request,
                                                    std::string_view management) {
  auto environment = request.environment;
  // Who is started by PMIx is Open MPI, whose settings its own launcher would hand on.
  if (management != "pmix") return environment;
  for (const auto& [name, value] : request.mca) environment["OMPI_MCA_" + name] = value;
  // As by its own launcher: no environment is bound unless it says so.
  environment.try_emplace("OMPI_MCA_hwloc_base_binding_policy", "none");
  for (const auto& [name, value] : request.shape.step_environment)
    environment.try_emplace(name, value);
  return environment;
}

}  // namespace

std::vector<Command> build_srun(const LaunchRequest& request) {
  DYN_ASSERT(!request.shape.step_prefix.empty(), "srun needs a place for its step");
  const std::string management(launcher_for(request.backend).process_management);
  Command command;
  command.environment = request.shape.launcher_environment;
  auto& argv = command.argv;
  argv = request.shape.step_prefix;
  argv.push_back("--mpi=" + management);
  argv.emplace_back("env");
  const auto environment = rank_environment(request, management);
  std::vector<std::string> names = request.inherited;
  for (const auto& [name, value] : environment) {
    names.push_back(name);
    argv.push_back(fmt::format("{}={}", name, value));
  }
  if (management == "none") names.emplace_back(kRankVariable);
  if (!request.shape.names_variable.empty())
    argv.push_back(fmt::format("{}={}", request.shape.names_variable, join(names, " ")));
  if (management == "none")
    argv.insert(
        argv.end(),
        {"sh", "-c", fmt::format("export {}=$SLURM_PROCID; exec \"$@\"", kRankVariable), "sh"});
  const LaunchShape& shape = request.shape;
  const auto& prefix = shape.step_rank_prefix.empty() ? shape.rank_prefix : shape.step_rank_prefix;
  argv.insert(argv.end(), prefix.begin(), prefix.end());
  argv.insert(argv.end(), request.worker.begin(), request.worker.end());
  return {command};
}

}  // namespace dynamiccl
