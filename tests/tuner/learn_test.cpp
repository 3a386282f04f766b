#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tuner/learn/training.hpp"
#include "tuner/state/features.hpp"

using namespace dynamiccl;

namespace {

std::vector<SimPlace> some_places(const SimCatalog& catalog, int count, std::uint64_t seed) {
  FastRandom random(seed);
  std::vector<SimPlace> places;
  for (int i = 0; i < count; ++i)
    places.push_back(draw_place(catalog, CurriculumStage::third, random));
  return places;
}

AgentMaker maker(const std::string& name) {
  return [name](std::uint64_t seed) {
    AgentOptions options;
    options.seed = seed;
    return make_agent(name, options);
  };
}

}  // namespace

TEST_CASE("torch and the pass without it give the same policy", "[E-101]") {
  const SimCatalog catalog({Backend::gloo, Backend::mpich});  // few settings: quick in debug builds
  const std::vector<SimPlace> places = some_places(catalog, 4, 11);
  const Policy policy = untrained_policy(3);
  const Rollout rollout = collect(policy, places, 5);
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
  const SimCatalog catalog({Backend::gloo, Backend::mpich});  // few settings: quick in debug builds
  const std::vector<SimPlace> places = some_places(catalog, 6, 12);
  const Policy policy = untrained_policy(4);
  Rollout rollout = collect(policy, places, 6);
  // Only the first value of every head is rewarded.
  std::size_t first = 0;
  for (Episode& episode : rollout.episodes)
    for (PolicyStep& step : episode) {
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
    for (const PolicyStep& step : episode) {
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
  const SimCatalog catalog({Backend::gloo, Backend::mpich});  // few settings: quick in debug builds
  const std::vector<SimPlace> places = some_places(catalog, 4, 13);
  const Policy policy = untrained_policy(6, 40);
  PpoTrainer trainer(policy, {}, 1);
  trainer.update(collect(policy, places, 7));
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

TEST_CASE("a search's rewards are together what its choices gained", "[E-101]") {
  const SimCatalog catalog({Backend::gloo, Backend::mpich});  // few settings: quick in debug builds
  const std::vector<SimPlace> places = some_places(catalog, 1, 13);
  const Policy policy = untrained_policy(4);
  const Rollout rollout = collect(policy, places, 6);
  REQUIRE(rollout.episodes.size() == 1);
  double gained = 0;
  for (const PolicyStep& step : rollout.episodes[0]) gained += static_cast<double>(step.reward);
  // Before the first look the agent recommends what the prior says.
  PolicyAgent agent(policy, {}, {});
  double before = 0;
  for (const SimCell& cell : places[0].cells)
    before += cell.log_us[agent.recommend(cell.search.task)] - cell.best_log_us;
  before /= static_cast<double>(places[0].cells.size());
  CHECK(std::abs(gained / 10 - (before - rollout.final_regret)) < 1e-4);
  CHECK(rollout.episodes[0].size() <= 4 * places[0].cells.size());
}

TEST_CASE("agents are scored on the same simulated places and launches") {
  const SimCatalog catalog({Backend::gloo, Backend::mpich});  // few settings: quick in debug builds
  const std::vector<SimPlace> places = some_places(catalog, 4, 13);
  const SimScore nothing = score_in_simulator(maker("default"), places, 3);
  const SimScore bandit = score_in_simulator(maker("bandit"), places, 3);
  REQUIRE(nothing.default_regret > 0.02);
  CHECK(nothing.default_regret == bandit.default_regret);
  for (const double regret : nothing.regret)
    CHECK(std::abs(regret - nothing.default_regret) < 1e-9);
  CHECK(bandit.mean_regret() < nothing.mean_regret());
  CHECK(bandit.regret.back() < 0.8 * nothing.default_regret);
  CHECK(score_in_simulator(maker("means"), places, 3).regret ==
        score_in_simulator(maker("means"), places, 3).regret);
}

TEST_CASE("a policy without weights for the context does not act by it, another does", "[E-25]") {
  const SimCatalog catalog;
  const std::vector<SimPlace> places = some_places(catalog, 10, 14);
  Policy policy = untrained_policy(6);
  // Large enough that the scores follow the state and not what is believed of the settings alone.
  for (const char* name : {"implementation_out", "resource_out"}) policy.weights.at(name) *= 100;
  CHECK(context_effect(policy, places).changed > 0.1);
  policy.weights.at("in_w").leftCols(state_width()).setZero();
  const ContextEffect blind = context_effect(policy, places);
  CHECK(blind.changed == 0);
  CHECK(blind.worth == 0);
}

TEST_CASE(
    "a feature is worth what first choices lose without it, and nothing where none acts by it",
    "[E-25]") {
  const SimCatalog catalog({Backend::gloo, Backend::mpich});  // few settings: quick in debug builds
  const std::vector<SimPlace> places = some_places(catalog, 6, 15);
  Policy policy = untrained_policy(6);
  for (const char* name : {"implementation_out", "resource_out"}) policy.weights.at(name) *= 100;
  const std::vector<FeatureEffect> effects = feature_effects(policy, places);
  const auto seen = static_cast<std::size_t>(
      std::count_if(feature_table().begin(), feature_table().end(),
                    [](const Feature& feature) { return feature.source.in_policy; }));
  REQUIRE(effects.size() == seen);
  CHECK(std::any_of(effects.begin(), effects.end(),
                    [](const FeatureEffect& effect) { return effect.changed > 0; }));
  for (const FeatureEffect& effect : effects) {
    INFO(effect.feature);
    CHECK(effect.changed <= effect.known + 1e-9);
    if (effect.changed == 0) CHECK(effect.worth == 0);
  }
  policy.weights.at("in_w").leftCols(state_width()).setZero();
  for (const FeatureEffect& effect : feature_effects(policy, places)) CHECK(effect.changed == 0);
}

TEST_CASE("the last update of a training is in its curve and the policy that is kept", "[E-101]") {
  const SimCatalog catalog({Backend::gloo});  // few settings: quick in debug builds
  std::vector<Policy> kept;
  // Six updates: the curve has a row after each stage's second, and after the fifth.
  const Trained trained = train(catalog, {.updates = 2, .jobs = 1, .held_out = 2}, 1,
                                [&](const Policy& policy) { kept.push_back(policy); });
  REQUIRE(trained.curve.size() == 4);
  REQUIRE(kept.size() == 4);
  for (std::size_t row = 0; row < 4; ++row) {
    CHECK(trained.curve[row].stage == std::min(1 + static_cast<int>(row), 3));
    CHECK(kept[row].provenance.at("steps") == trained.curve[row].steps);
    if (row > 0) CHECK(trained.curve[row - 1].steps < trained.curve[row].steps);
  }
  bool trained_on = false;
  for (const auto& [name, matrix] : trained.policy.weights) {
    INFO(name);
    CHECK(kept[3].weights.at(name) == matrix);
    trained_on = trained_on || kept[2].weights.at(name) != matrix;
  }
  CHECK(trained_on);
}
