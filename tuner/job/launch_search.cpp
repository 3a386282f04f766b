#include "tuner/job/launch_search.hpp"

#include <cmath>
#include <utility>

#include "tuner/agents/bandit.hpp"

namespace dynamiccl {
namespace {

/// The prior comes from the job's own mix of calls.
constexpr double kPriorTrust = 0.8;

/// Launch settings move a job's step far more than call settings move a call, and launches of a job
/// differ by less than those of a benchmark. What one
/// setting does beside what its parts do: about 15 % of a step over 19 settings of sockets
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

std::unique_ptr<Agent> search_agent(const LaunchSearchOptions& options) {
  if (options.agent == "bandit")
    return std::make_unique<Bandit>(options.agent_options, step_belief());
  return make_agent(options.agent, options.agent_options);
}

}  // namespace

LaunchSearch::LaunchSearch(Task task, const LaunchSearchOptions& options)
    : task_(std::move(task)),
      options_(options),
      agent_(search_agent(options)),
      loop_(*agent_),
      history_(task_.space->arms().size()),
      chosen_in_(task_.state) {
  task_.prior_trust = kPriorTrust;
}

void LaunchSearch::learn(std::size_t arm, const Trial& trial) {
  history_.add(arm, trial);
  loop_.put({arm, 1, false});
  chosen_in_ = loop_.observe(task_, trial, std::nullopt).state;
}

void LaunchSearch::rule_out(std::size_t arm) {
  const Trial failed{.ok = false, .time = Micros(0)};
  history_.add(arm, failed);
  agent_->learn(task_, arm, failed);
}

std::optional<Choice> LaunchSearch::next() {
  if (launches() >= options_.launches || task_.space->arms().size() < 2) return std::nullopt;
  if (loop_.finished(task_)) {
    // What is believed best must have been seen before it is believed.
    const std::size_t arm = loop_.recommend(task_);
    if (arm == 0 || history_.tries(arm) > 0 || history_.failed(arm)) return std::nullopt;
    return Choice{arm, 1, false};
  }
  // Steps of one launch repeat to within the noise: a second launch of the same arm is left to the
  // confirmation, unless everything else was seen.
  Choice choice = loop_.propose(task_);
  constexpr int kDraws = 64;
  for (int draw = 0; draw < kDraws && history_.tries(choice.arm) > 0; ++draw)
    choice = loop_.propose(task_);
  if (history_.failed(choice.arm)) return std::nullopt;
  return choice;
}

std::size_t LaunchSearch::best() const {
  const auto best = history_.best();
  const auto reference = history_.log_us(0);
  if (!best || !reference) return 0;
  return *history_.log_us(*best) < *reference ? *best : 0;
}

std::optional<double> LaunchSearch::measured(std::size_t arm) const {
  const auto log_us = history_.log_us(arm);
  return log_us ? std::optional(std::exp(*log_us)) : std::nullopt;
}

}  // namespace dynamiccl
