#pragma once

#include <cstddef>
#include <string>

#include "core/vocabulary/json.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/launch/launch.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// A plan with the exact commands of every group: {"groups": [...], "estimated_s": ...}.
/// Container and folder names hold "RUN" and "LAUNCH" where each run and launch puts its own id.
nlohmann::json plan_json(const Experiment& experiment, const Plan& plan, const LaunchSite& site);

/// The same for people: groups, their cells, the impossible ones with reasons, and time; what it
/// comes to stands first and last.
/// @param width columns of the terminal; commands go on behind a backslash, to be copied
std::string plan_text(const Experiment& experiment, const Plan& plan, const LaunchSite& site,
                      std::size_t width, bool shows_commands);

}  // namespace dynamiccl
