#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tuner/learn/search_score.hpp"
#include "tuner/learn/trainer.hpp"

using namespace dynamiccl;

namespace {

SimulatorOptions small_stage() {
  SimulatorOptions options;
  options.stage = CurriculumStage::first;
  options.tasks_per_episode = 2;
  options.steps_per_task = 5;
  return options;
}

}  // namespace

TEST_CASE("torch and the pass without it give the same policy", "[E-101]") {
  const SimCatalog catalog;
  VectorSimulator simulator(catalog, small_stage(), 4, 11);
  const Policy policy = untrained_policy(3);
  const Rollout rollout = collect(policy.network(), simulator, 1, 5);
  REQUIRE_FALSE(rollout.episodes.empty());
  const PpoTrainer trainer(policy, {}, 1);
  const ForwardDifference difference = trainer.difference(rollout);
  CHECK(difference.log_probability < 1e-4);
  CHECK(difference.value < 1e-4);
  const Weights back = trainer.weights();
  for (const auto& [name, matrix] : policy.weights) {
    INFO(name);
    CHECK((back.at(name) - matrix).cwiseAbs().maxCoeff() == 0.0F);
  }
}

TEST_CASE("an update moves towards what was rewarded", "[E-101]") {
  const SimCatalog catalog;
  VectorSimulator simulator(catalog, small_stage(), 6, 12);
  const Policy policy = untrained_policy(4);
  Rollout rollout = collect(policy.network(), simulator, 1, 6);
  // Only the first value of every head is rewarded.
  std::size_t first = 0;
  for (Episode& episode : rollout.episodes)
    for (RolloutStep& step : episode) {
      const bool rewarded = !step.heads.empty() && step.heads[0].picked == 0;
      first += rewarded ? 1 : 0;
      step.reward = rewarded ? 1 : -1;
      step.value = 0;
    }
  REQUIRE(first > 0);
  PpoOptions options;
  options.discount = 0;
  options.epochs = 12;
  PpoTrainer trainer(policy, options, 1);
  const PpoReport report = trainer.update(rollout);
  CHECK(std::isfinite(report.policy_loss));
  Policy after = policy;
  after.weights = trainer.weights();
  const PolicyNetwork before_network = policy.network();
  const PolicyNetwork after_network = after.network();
  double gained = 0;
  for (const Episode& episode : rollout.episodes) {
    Eigen::VectorXf before = before_network.initial_state();
    Eigen::VectorXf now = before;
    for (const RolloutStep& step : episode) {
      before = before_network.advance(step.input, before);
      now = after_network.advance(step.input, now);
      if (step.heads.empty()) continue;
      const HeadStep& head = step.heads[0];
      gained += static_cast<double>(
          softmax(after_network.scores(now, head.candidates.features, head.implementation))[0] -
          softmax(before_network.scores(before, head.candidates.features, head.implementation))[0]);
    }
  }
  CHECK(gained > 0);
}

TEST_CASE("a smaller policy learns nothing of features that it does not see", "[E-61]") {
  const SimCatalog catalog;
  VectorSimulator simulator(catalog, small_stage(), 4, 13);
  const Policy policy = untrained_policy(6, 40);
  PpoTrainer trainer(policy, {}, 1);
  trainer.update(collect(policy.network(), simulator, 1, 7));
  const Eigen::MatrixXf before = policy.weights.at("in_w");
  const Eigen::MatrixXf after = trainer.weights().at("in_w");
  int unseen = 0;
  for (Eigen::Index i = 0; i < before.cols(); ++i) {
    if (!before.col(i).isZero(0)) continue;
    ++unseen;
    CHECK(after.col(i).isZero(0));
  }
  CHECK(unseen > 40);
  CHECK(after != before);
}

TEST_CASE("agents are scored on the same simulated jobs") {
  const SimCatalog catalog;
  const auto score = [&](const std::string& name) {
    VectorSimulator simulator(catalog, small_stage(), 8, 13);
    return score_in_simulator(
        [&](std::uint64_t seed) {
          AgentOptions options;
          options.seed = seed;
          return make_agent(name, options);
        },
        simulator, 1, 3);
  };
  const SimScore nothing = score("default");
  const SimScore bandit = score("bandit");
  CHECK(nothing.evaluations == 0);
  CHECK(bandit.evaluations > 1);
  CHECK(bandit.final_regret < nothing.final_regret);
  CHECK(nothing.mean_reward < 0);
}

TEST_CASE("searches are counted on the same simulated regimes for every agent") {
  const SimCatalog catalog;
  const auto score = [&](const std::string& name) {
    return search_in_simulator(
        [&](std::uint64_t seed) {
          AgentOptions options;
          options.seed = seed;
          return make_agent(name, options);
        },
        catalog, CurriculumStage::second, 4, 21);
  };
  const SearchScore nothing = score("default");
  const SearchScore descent = score("coordinate-descent");
  const SearchScore ppo = score("ppo");
  REQUIRE(nothing.tasks > 2);
  CHECK(descent.tasks == nothing.tasks);
  CHECK(nothing.reached_95 == 0);
  CHECK(nothing.evaluations == 0);
  CHECK(nothing.evaluations_to_95 >= 24);
  CHECK(nothing.gain_share == 0);
  CHECK(ppo.gain_share > 0.5);
  CHECK(ppo.gain_share <= 1);
  CHECK(ppo.evaluations < descent.evaluations);
}
