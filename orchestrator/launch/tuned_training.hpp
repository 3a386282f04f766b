#pragma once

#include <string>
#include <vector>

#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// Does a training cell of the group choose the library's settings while it runs?
bool has_tuned_training(const PlannedGroup& group);

/// Puts the tables that cells name into the launch's folder, where ranks in containers see them.
/// @throws Error(input) when one cannot be read
void bring_tables(const std::vector<WorkCell>& cells, const std::string& folder);

}  // namespace dynamiccl
