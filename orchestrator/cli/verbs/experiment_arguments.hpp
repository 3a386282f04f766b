#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_session.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// FILE, --set, --only and --profiles of the verbs that take an experiment.
struct ExperimentArguments {
  std::string file;
  std::vector<std::string> overrides;
  std::string only;
  std::vector<std::string> profile_folders;
  std::string hosts;
  std::string remote_shell;
  std::string slurm;
  int nodes = 0;
  std::string machine_file;
  /// Text of machines to simulate by what the experiment calls them, instead of their files: a
  /// capsule's.
  std::map<std::string, std::string> machines;

  /// @param required false for a verb that may do without an experiment
  void add_to(CLI::App& verb, bool required = true);
  /// The words of a command line that give the same experiment.
  [[nodiscard]] std::vector<std::string> words() const;
};

/// The experiment's overrides: --set, and what --hosts, --slurm, --nodes
/// and --machine-file stand for.
std::vector<std::string> all_overrides(const ExperimentArguments& arguments);

/// An experiment with what this machine makes of it.
struct LoadedExperiment {
  Experiment experiment;
  Plan plan;
  std::shared_ptr<ClusterSession> cluster;  ///< the ranks' machines; nullptr = this one
};

/// Reads profiles and experiment, looks at the machine and expands.
/// @throws Error(input) with one line per mistake
LoadedExperiment load_experiment(const ExperimentArguments& arguments);

/// The same without a look at the machine: every cell that can be measured anywhere counts as
/// possible. For what was measured before, perhaps elsewhere.
/// @throws Error(input) with one line per mistake
LoadedExperiment load_experiment_of_anywhere(const ExperimentArguments& arguments);

/// What reads but should be written anew, on stderr. The exit code stays as it is.
void print_notes(const std::vector<std::string>& notes);

/// What a shell takes to start a verb again on the same experiment and database.
/// @param more words behind the experiment's own
std::string command_to_go_on(const std::string& verb, const ExperimentArguments& experiment,
                             const std::vector<std::string>& more, const Shared& shared);

/// The folders of environment profiles: the project's own, then the user's.
std::vector<std::string> profile_folders(const std::vector<std::string>& further);

}  // namespace dynamiccl
