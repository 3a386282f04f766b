#pragma once

#include <vector>

#include "db/reader.hpp"
#include "orchestrator/tune/tuning.hpp"

namespace dynamiccl {

/// Whole ways to run each workload of an experiment, for the bandit that chooses between runs:
/// backend, architecture, schedule (training method or algorithm), synchronisation and codec are
/// the arms, a workload in an environment is the task. Training cells with a target accuracy are
/// compared by the time until they reach it, and one that does not reach it is no choice; without a
/// target those that do not train as one process would are left out. Where the environment is a
/// choice, too, it is another part of the arm, and the workload alone is the task. The first way in
/// the file is the default. The prior is the published figures' (architecture, backend,
/// environment) and, for training, what the ratio of communication to computation says of the
/// schedules.
/// @throws Error(input) when no workload can be run in two ways here, or when two workloads differ
/// in nothing that a task's key holds
TunePlan make_run_plan(const Plan& plan, const TuneOptions& options, bool any_environment = false);

/// ln of the published time of a way to run, up to a constant; 0 where nothing is published.
double published_log_time(const PlannedGroup& group);

/// ln by which a training method is expected to be off the others of its architecture: the
/// published winners by model intensity (figures.toml, s001.winner_rules), as far as communication
/// matters for this model. 0 for collectives.
double schedule_log_offset(const WorkCell& cell, int ranks);

/// What earlier runs in the database say of the plan's arms: the newest launches of the same cells,
/// and of the choices that earlier searches logged. Oldest first, at most `most` per arm.
std::vector<Experience> earlier_runs(const Reader& reader, const TunePlan& plan, int most = 6);

}  // namespace dynamiccl
