#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tuner/agents/arm_history.hpp"
#include "tuner/agents/task_loop.hpp"

namespace dynamiccl {

/// Of a launch's prior (launch_prior): it comes from the job's own mix of calls.
inline constexpr double kLaunchPriorTrust = 0.8;

/// Who chooses between launches of a job, judged by the job's own step.
/// @throws Error(input) for an unknown agent
std::unique_ptr<Agent> launch_agent(const std::string& name, const AgentOptions& options);

/// What to launch next; nullopt when nothing is worth a launch any more.
std::optional<Choice> next_launch(TaskLoop& loop, const Task& task, const ArmHistory& history);

}  // namespace dynamiccl
