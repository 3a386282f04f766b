#include "tuner/job/launch_agent.hpp"

#include "tuner/agents/bandit.hpp"

namespace dynamiccl {
namespace {

/// Launch settings move a job's step far more than call settings move a call, and launches of a job
/// differ by less than those of a benchmark. What one
/// setting does besides what its parts do: about 15 % of a step over 19 settings of sockets
/// (reports/measured/h100x2-2026-11-containers, job/grid.sqlite.xz).
BeliefOptions step_belief() {
  BeliefOptions belief;
  belief.resource_sd = 0.5;
  belief.implementation_sd = 0.1;
  belief.arm_sd = 0.12;
  belief.resource_scale = 2.5;
  belief.noise_sd = 0.06;
  belief.launch_share = 0;
  return belief;
}

}  // namespace

std::unique_ptr<Agent> launch_agent(const std::string& name, const AgentOptions& options) {
  if (name == "bandit") return std::make_unique<Bandit>(options, step_belief());
  return make_agent(name, options);
}

std::optional<Choice> next_launch(TaskLoop& loop, const Task& task, const ArmHistory& history) {
  if (history.size() < 2) return std::nullopt;
  if (loop.finished(task)) {
    // What is believed best must have been seen before it is believed.
    const std::size_t arm = loop.recommend(task);
    if (arm == 0 || history.tries(arm) > 0 || history.failed(arm)) return std::nullopt;
    return Choice{arm, 1, false};
  }
  // Steps of one launch repeat to within the noise: a second launch of the same arm is left to the
  // confirmation, unless everything else was seen.
  Choice choice = loop.propose(task);
  constexpr int kDraws = 64;
  for (int draw = 0; draw < kDraws && history.tries(choice.arm) > 0; ++draw)
    choice = loop.propose(task);
  if (history.failed(choice.arm)) return std::nullopt;
  return choice;
}

}  // namespace dynamiccl
