#pragma once

#include "core/vocabulary/units.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// What one launch of the group will take, start to stored: a rough guess for `plan` and never used
/// for anything else.
Micros estimated_launch(const PlannedGroup& group, const EnvironmentProfile& profile,
                        const RunProtocol& protocol);

/// All launches of the plan with the environments' starts and stops.
Micros estimated_run(const Plan& plan, const Experiment& experiment);

}  // namespace dynamiccl
