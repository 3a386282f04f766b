#pragma once

#include <string>
#include <vector>

#include "db/table.hpp"
#include "profiles/published/training_studies.hpp"
#include "reports/model/training_evidence.hpp"

namespace dynamiccl {

// What the two queries of published trade-offs have in common.

inline constexpr const char* kNotMeasured = "not measured";

/// What is measured of one property: a word beside the published label, and what it rests on.
struct TradeoffFinding {
  std::string measured = kNotMeasured;
  std::string evidence;
};

/// @param like  a cell of the workload that the row is of; nullptr = nothing was trained
/// @param of    the cell that the finding is from; nullptr = none
std::vector<Value> tradeoff_row(const TrainingEvidence* like, const std::string& run_id,
                                const PublishedLabel& published, const TrainingEvidence* of,
                                const TradeoffFinding& finding);

}  // namespace dynamiccl
