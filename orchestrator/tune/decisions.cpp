#include <algorithm>

#include "orchestrator/tune/tuning.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/job/decision_record.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json run_json(const TunePlan& plan, const RunChoice& choice) {
  const PlannedGroup& group = plan.base.groups[choice.group];
  return {{"backend", name_of(group.backend)},
          {"architecture", name_of(group.architecture)},
          {"algorithm", choice.cell.algorithm}};
}

}  // namespace

DecisionInfo decision_of(const TunePlan& plan, const TuneTask& task, const SearchTask& search,
                         const SearchStep& step, std::uint64_t epoch) {
  const ActionSpace& space = *search.task.space;
  const Action& action = space.arms().at(step.choice.arm);
  DecisionInfo row;
  row.task_key = search.task.key.task.text();
  row.environment = task.environment;
  row.regime = search.task.key.regime;
  row.step = step.step;
  row.kind = step.kind;
  row.epoch = epoch;
  row.arm = task.text(plan, step.choice.arm);
  row.propensity = std::clamp(step.choice.propensity, 1e-12, 1.0);
  row.state_json = state_json(step.state).dump();
  row.candidates_json = candidates_json(space).dump();
  row.guard = name_of(step.guard);
  row.asked_json = (task.runs.empty() ? setting_json(space.setting(action))
                                      : run_json(plan, task.runs.at(step.choice.arm)))
                       .dump();
  if (!step.measured.applied.empty())
    row.applied_json = json{{"algorithm", step.measured.applied}}.dump();
  row.calls = step.measured.calls;
  if (step.measured.trial.ok && step.measured.trial.time.count() > 0)
    row.time_us = step.measured.trial.time.count();
  if (step.reference && step.reference->count() > 0) row.reference_us = step.reference->count();
  if (step.reward) {
    row.reward = step.reward->total();
    row.reward_json = reward_json(*step.reward).dump();
  }
  row.launch = step.measured.origin;
  return row;
}

std::string policy_version(const std::string& agent, const AgentOptions& options) {
  if (!reads_policy(agent)) return "";
  return read_policy(policy_or_throw(options.policy_path)).version();
}

nlohmann::json options_json(const std::string& agent, const AgentOptions& options) {
  json all = {{"stop_gain", options.stop_gain},
              {"safety", options.safety},
              {"repeats", options.repeats},
              {"max_evaluations_per_task", options.max_evaluations},
              {"policy", options.policy_path}};
  if (reads_policy(agent))
    all["training"] = read_policy(policy_or_throw(options.policy_path)).provenance;
  return all;
}

}  // namespace dynamiccl
