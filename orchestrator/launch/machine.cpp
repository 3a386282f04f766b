#include "orchestrator/launch/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "containers/cluster/cluster_environment.hpp"
#include "containers/command.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/launcher.hpp"
#include "orchestrator/launch/simulated_launch.hpp"
#include "profiles/detect/probes/cpu_probe.hpp"
#include "profiles/detect/probes/settings_files.hpp"
#include "tuner/export/mpi_export.hpp"

namespace dynamiccl {
namespace {

std::string why_backend_cannot_run(Backend backend, const std::string& worker_folder, int gpus) {
  if (backend_facts(backend).on_gpu && gpus == 0)
    return fmt::format("{} needs an NVIDIA GPU; the driver shows none (/proc/driver/nvidia/gpus)",
                       name_of(backend));
  const std::string worker = fmt::format("{}/{}", worker_folder, worker_program(backend));
  if (!std::filesystem::exists(worker))
    return why_part_is_absent(worker, "its library was not found when this build was configured");
  return "";
}

/// A variable or a file of parameters by which Open MPI takes forced algorithms in every launch.
bool machine_forces_algorithms() {
  const std::string variable = "OMPI_MCA_" + std::string(kDynamicRulesName);
  if (const char* set = std::getenv(variable.c_str())) return std::string_view(set) != "0";
  const char* home = std::getenv("HOME");
  const auto filed = filed_settings(ProbeRoot(), {{"HOME", home != nullptr ? home : ""}});
  const auto found = filed.find(variable);
  return found != filed.end() && found->second.value != "0";
}

std::string why_backend_cannot_train(Backend backend, const std::string& worker_folder) {
  const std::string trainer = fmt::format("{}/{}", worker_folder, trainer_program(backend));
  if (!std::filesystem::exists(trainer))
    return why_part_is_absent(trainer,
                              "apt-get install libtorch-dev libopenblas0-pthread; then "
                              "./dynamiccl run FILE builds it");
  return "";
}

}  // namespace

int gpu_count() {
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator at("/proc/driver/nvidia/gpus", error), end;
       !error && at != end; at.increment(error)) {
    std::error_code gone;
    count += at->is_directory(gone) ? 1 : 0;
  }
  return count;
}

std::string no_huge_pages_reason() {
  const auto mode = huge_page_mode(ProbeRoot());
  return why_no_huge_pages(mode ? *mode : "");
}

Capabilities inspect_machine(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder) {
  return inspect_machine(profiles, worker_folder, gpu_count());
}

Capabilities inspect_machine(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder, int gpus) {
  Capabilities can;
  can.gpus = gpus;
  for (const auto& entry : NameTable<Backend>::entries) {
    const auto reason = why_backend_cannot_run(entry.value, worker_folder, can.gpus);
    if (!reason.empty()) can.backend_reasons[entry.value] = reason;
    const auto no_training = why_backend_cannot_train(entry.value, worker_folder);
    if (!no_training.empty()) can.training_backend_reasons[entry.value] = no_training;
  }
  for (const auto& [name, profile] : profiles) {
    if (const auto reason = unavailable_reason(profile)) can.environment_reasons[name] = *reason;
    if (profile.simulated()) {
      can_simulate(profile, can);
      continue;
    }
    if (profile.launcher == LauncherPlace::inside) continue;
    for (const auto& entry : NameTable<Backend>::entries) {
      const auto& launcher = launcher_for(entry.value);
      if (launcher.program.empty() || !find_program(std::string(launcher.program)).empty())
        continue;
      can.pair_reasons[{name, entry.value}] =
          fmt::format("{} is not in PATH: apt-get install {}", launcher.program, launcher.package);
    }
  }
  can.huge_pages_reason = no_huge_pages_reason();
  can.may_force_algorithms = machine_forces_algorithms();
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0)
    can.memory = Bytes(static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes));
  return can;
}

namespace {

/// Open MPI's mpirun says this itself, and then waits for ever. "" = it takes these names.
std::string why_no_mpirun(const std::vector<ClusterNode>& nodes) {
  for (const ClusterNode& node : nodes) {
    const bool plain = std::all_of(node.name.begin(), node.name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-';
    });
    if (!plain)
      return fmt::format(
          "Open MPI's mpirun takes names of letters, digits, dots and hyphens, and "
          "\"{}\" is none: give the host another one in ~/.ssh/config (Host, "
          "HostName, User)",
          node.name);
  }
  return "";
}

}  // namespace

Capabilities inspect_cluster(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder, const ClusterSession& cluster) {
  const ClusterOptions& options = cluster.options();
  const auto nodes = cluster.nodes();
  const int count = static_cast<int>(nodes.size());
  Capabilities can = inspect_machine({}, worker_folder, options.gpus_per_node * count);
  for (const auto& [name, profile] : profiles) {
    if (const auto reason = cluster_unavailable_reason(profile, cluster)) {
      can.environment_reasons[name] = *reason;
    } else if (profile.kind == EnvironmentKind::singularity) {
      if (const auto missing = unavailable_reason(profile))
        can.environment_reasons[name] = *missing;
    }
  }
  const std::string name_reason = options.start == ClusterStart::srun ? "" : why_no_mpirun(nodes);
  for (const auto& [name, profile] : profiles) {
    if (name_reason.empty() || profile.in_engine()) continue;
    for (const auto& entry : NameTable<Backend>::entries)
      if (backend_facts(entry.value).mca) can.pair_reasons[{name, entry.value}] = name_reason;
  }
  can.why_not_placed = [nodes, per_node = options.ranks_per_node](int ranks) -> std::string {
    try {
      place_ranks(nodes, ranks, per_node);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  can.nodes_of = [nodes, per_node = options.ranks_per_node](int ranks) {
    return static_cast<int>(place_ranks(nodes, ranks, per_node).size());
  };
  can.may_force_algorithms = true;  // files of other machines are not looked into
  // This machine's is the best guess of a node's, of which there are several.
  can.memory = Bytes(can.memory.count() * static_cast<std::uint64_t>(count));
  return can;
}

namespace {

int most_ranks(const Experiment& experiment) {
  int most = 1;
  for (const auto& dimension : experiment.dimensions)
    for (const auto& choice : dimension) most = std::max(most, choice.ranks.value_or(1));
  return most;
}

}  // namespace

std::shared_ptr<ClusterSession> cluster_session(const Experiment& experiment) {
  if (!experiment.cluster) return nullptr;
  ClusterOptions options = *experiment.cluster;
  const bool in_job = options.slurm() && surrounding_allocation().has_value();
  if (options.slurm() && options.nodes == 0 && !in_job)
    throw Error(ErrorKind::input,
                "Slurm is asked for an allocation, but not of how many nodes: add --nodes N (or "
                "nodes under [cluster]), or start dynamiccl inside of a job");
  const int ranks = most_ranks(experiment);
  const int shares = options.nodes > 0 ? (ranks + options.nodes - 1) / options.nodes : ranks;
  const int slots = options.ranks_per_node > 0 ? options.ranks_per_node : shares;
  return std::make_shared<ClusterSession>(options, slots);
}

}  // namespace dynamiccl
