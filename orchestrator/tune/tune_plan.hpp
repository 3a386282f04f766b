#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/experiment/tune_options.hpp"
#include "orchestrator/plan/plan.hpp"
#include "tuner/search/search.hpp"

namespace dynamiccl {

/// A whole way to run a workload: what the bandit chooses between runs.
struct RunChoice {
  std::size_t group = 0;  ///< index into TunePlan::base
  WorkCell cell;
  /// Times are compared per unit of work: a run with fewer workers does less in a step.
  double work_scale = 1;
};

struct TunePlan;

/// One cell of an experiment as something to be tuned.
struct TuneTask {
  std::size_t group = 0;  ///< index into TunePlan::base
  WorkCell cell;          ///< under the library's default
  std::string environment;
  bool held_out = false;
  SearchTask search;  ///< key.regime is the environment's name until a launch has shown it
  /// By arm, where whole runs are chosen (see run_plan.hpp); empty: settings of `cell`.
  std::vector<RunChoice> runs;

  /// The arm for people: "gloo ring mg-wfbp", "ring segment_bytes=8192".
  [[nodiscard]] std::string text(const TunePlan& plan, std::size_t arm) const;
  [[nodiscard]] std::size_t arms() const { return search.task.space->arms().size(); }
};

/// The task of a cell in a group, index `index` of a plan: its key and size, without settings to
/// choose from.
TuneTask task_in(const PlannedGroup& group, std::size_t index, WorkCell cell);

/// The tasks of an experiment: every possible cell with the library's own algorithm and no knobs of
/// its own. Other cells are settings, not tasks, and are left out.
struct TunePlan {
  TuneOptions options;
  Plan base;  ///< groups with launch knobs that all arms share, cells of the tasks only
  std::vector<TuneTask> tasks;

  [[nodiscard]] std::size_t arm_count() const;
  /// Are its tasks those of machines that SimGrid simulates? Then all are.
  [[nodiscard]] bool simulated() const;
};

/// Do a group's ranks reach each other through shared memory? nullopt: not known (several machines
/// with more than a rank each, a profile or file that names the transports itself, shared IPC
/// across containers).
std::optional<bool> shares_memory(const Experiment& experiment, const PlannedGroup& group);

/// Can a launch setting ("mca.btl_tcp_sndbuf") act between the ranks of a group? Open MPI's
/// settings of TCP cannot where all ranks share memory, those of shared memory not where none do.
/// @param shared_memory as shares_memory() says
bool acts_between_ranks(const std::string& setting, const PlannedGroup& group,
                        std::optional<bool> shared_memory);

/// @throws Error(input) where an environment is simulated, as nothing is measured there that
/// settings of a job could be chosen by
void refuse_simulated(const Plan& plan);

/// @param simulated cells that SimGrid simulates may be tuned; their settings are SMPI's algorithms
/// @throws Error(input) when no cell can be tuned, or one is simulated and may not
TunePlan make_tune_plan(const Experiment& experiment, const Plan& plan, const TuneOptions& options,
                        bool simulated = false);

/// An arm's place in a plan: the group that its launch settings make, and its cell there.
struct ArmPlace {
  std::string group_id;
  std::string cell_id;
};
/// @param salt as in plan_for()
ArmPlace place_of(const TunePlan& plan, const Ask& ask, const std::string& salt);

/// The groups and cells that measure these arms: one group per base group and launch settings, so
/// that one launch serves as many as can be. Repeated asks are measured once.
/// @param salt makes ids that no other round has; "" = the stable ids of a sweep
Plan plan_for(const TunePlan& plan, const std::vector<Ask>& asks, const std::string& salt);

/// Arms that no job can load (Reach::own).
std::size_t own_settings(const TunePlan& plan);

/// Every arm of every task.
std::vector<Ask> all_arms(const TunePlan& plan);

}  // namespace dynamiccl
