#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/decision_log.hpp"
#include "orchestrator/launch/launch.hpp"
#include "tuner/job/decision_record.hpp"

namespace dynamiccl {

/// Does a training cell of the group choose the library's settings while it runs?
bool has_tuned_training(const PlannedGroup& group);

/// Puts the tables that cells name into the launch's folder, where ranks in containers see them.
/// @throws Error(input) when one cannot be read
void bring_tables(const std::vector<WorkCell>& cells, const std::string& folder);

/// What is kept of a decision in the database.
DecisionInfo decision_info(const DecisionRecord& record);

/// Stores what the launch's ranks chose, under the regime that was detected. Nothing where they
/// chose nothing.
/// @param db path of the database @param launch row
/// @throws Error(data) when the file of choices is damaged
void store_decisions(const PreparedLaunch& prepared, const PlannedGroup& group,
                     const LaunchEnd& end, const std::string& db, const std::string& run_id,
                     std::int64_t launch);

}  // namespace dynamiccl
