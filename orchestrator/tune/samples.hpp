#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"
#include "orchestrator/tune/tune_plan.hpp"
#include "tuner/search/replay.hpp"

namespace dynamiccl {

/// Marks a run as a sweep of all arms in the overrides that the store keeps.
inline constexpr const char* kSweepMark = "tune=sweep";
/// Of a sweep that has settings, too, that no job can load: without them it is another one.
inline constexpr const char* kOwnMark = "tune=own";

/// The newest sweep of an experiment of this name.
/// @throws Error(input) when the database has none
std::string find_sweep(const Reader& reader, const std::string& experiment_name,
                       const std::string& file);

/// Did the run measure settings that ask for huge pages? Where it did not, there are none.
bool measured_huge_pages(const Reader& reader, const std::string& run_id);

/// Did the machine that a run was measured on have LL128 to choose? By the settings of its plan.
bool measured_ll128(const Reader& reader, const std::string& run_id);

/// Makes the cells impossible that the run did not measure: it could not, or was not asked to.
void keep_measured_cells(Plan& plan, const Reader& reader, const std::string& run_id);

/// What a sweep measured of every arm of every task. Tasks of which it measured nothing are dropped
/// from the plan.
/// @throws Error(input) when it measured none, or a task's default in fewer than three launches
std::vector<SampledTask> load_samples(const Reader& reader, TunePlan& plan,
                                      const std::string& run_id);

}  // namespace dynamiccl
