#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"
#include "orchestrator/tune/tune_plan.hpp"
#include "tuner/search/replay.hpp"

namespace dynamiccl {

/// Marks a run as a sweep of all arms in the overrides that the store keeps.
inline constexpr const char* kSweepMark = "tune=sweep";

/// The newest sweep of an experiment of this name.
/// @throws Error(input) when the database has none
std::string find_sweep(const Reader& reader, const std::string& experiment_name,
                       const std::string& file);

/// What a sweep measured of every arm of every task.
/// @throws Error(input) when it measured a task's default in fewer than three launches
std::vector<SampledTask> load_samples(const Reader& reader, const TunePlan& plan,
                                      const std::string& run_id);

}  // namespace dynamiccl
