#pragma once

#include <cstdint>
#include <string>

#include "db/decision_log.hpp"
#include "orchestrator/launch/launch.hpp"
#include "tuner/job/decision_record.hpp"

namespace dynamiccl {

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
