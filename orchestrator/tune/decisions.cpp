#include <algorithm>
#include <cmath>

#include "orchestrator/tune/tuning.hpp"
#include "tuner/policy/policy_file.hpp"
#include "tuner/state/features.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json setting_json(const Setting& setting) {
  return {{"algorithm", setting.algorithm},
          {"call", setting.call_knobs},
          {"launch", setting.launch_knobs}};
}

json run_json(const TunePlan& plan, const RunChoice& choice) {
  const PlannedGroup& group = plan.base.groups[choice.group];
  return {{"backend", name_of(group.backend)},
          {"architecture", name_of(group.architecture)},
          {"algorithm", choice.cell.algorithm}};
}

/// The encoded vector by feature name; what is unknown encodes as zeros and is left out.
json state_json(const State& state) {
  json object = json::object();
  const Eigen::VectorXf encoded = encode(state);
  Eigen::Index column = 0;
  for (const Feature& feature : feature_table()) {
    json values = json::array();
    bool known = false;
    for (int i = 0; i < feature.width; ++i, ++column) {
      values.push_back(std::round(static_cast<double>(encoded[column]) * 1e4) / 1e4);
      known = known || encoded[column] != 0.0F;
    }
    if (known) object[std::string(feature.name)] = values;
  }
  return object;
}

json candidates_json(const ActionSpace& space) {
  json knobs = json::array();
  for (std::size_t k = 0; k < space.knobs().size(); ++k) {
    const Knob& knob = space.knobs()[k];
    std::vector<bool> used(knob.values.size(), false);
    for (const Action& arm : space.arms()) used[arm[k]] = true;
    std::string mask;
    for (const bool bit : used) mask += bit ? '1' : '0';
    knobs.push_back({{"name", knob.name}, {"values", knob.values}, {"mask", mask}});
  }
  return {{"space", space.name()}, {"arms", space.arms().size()}, {"knobs", knobs}};
}

json reward_json(const RewardTerms& terms) {
  return {{"base", terms.base},
          {"call_shaping", terms.call_shaping},
          {"switched", terms.switched},
          {"congestion", terms.congestion},
          {"probe", terms.probe},
          {"convergence", terms.convergence},
          {"sm", terms.sm},
          {"tier", terms.tier},
          {"fault", terms.fault}};
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
  if (agent != "ppo") return "";
  return (options.policy_path.empty() ? untrained_policy(1) : read_policy(options.policy_path))
      .version();
}

nlohmann::json options_json(const std::string& agent, const AgentOptions& options) {
  json all = {{"stop_gain", options.stop_gain},
              {"safety", options.safety},
              {"repeats", options.repeats},
              {"max_evaluations_per_task", options.max_evaluations},
              {"policy", options.policy_path}};
  if (agent == "ppo" && !options.policy_path.empty())
    all["training"] = read_policy(options.policy_path).provenance;
  return all;
}

}  // namespace dynamiccl
