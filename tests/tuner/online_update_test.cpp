#include "tuner/agents/online_update.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tuner/action/spaces.hpp"
#include "tuner/agents/policy_agent.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/search/search.hpp"

using namespace dynamiccl;

namespace {

/// One head of three values that only its features tell apart.
HeadStep head_of(std::size_t picked) {
  HeadStep head;
  head.candidates.values = {0, 1, 2};
  head.candidates.features = Eigen::MatrixXf::Zero(kCandidateFeatures, 3);
  for (Eigen::Index v = 0; v < 3; ++v) head.candidates.features(v, v) = 1;
  head.picked = picked;
  head.implementation = true;
  return head;
}

double odds_of(const PolicyNetwork& network, const Eigen::VectorXf& hidden, std::size_t value) {
  const Eigen::VectorXf odds =
      softmax(network.scores(hidden, head_of(0).candidates.features, true));
  return static_cast<double>(odds[static_cast<Eigen::Index>(value)]);
}

/// A batch in which each value was chosen alike often; value 0 brought `first`, the others -1.
PolicyNetwork updated(const OnlineUpdateOptions& options, double first) {
  PolicyNetwork network = untrained_policy(1).network();
  const Eigen::VectorXf hidden = network.initial_state();
  OnlineUpdate update(options);
  bool changed = false;
  for (std::size_t i = 0; i < options.batch; ++i) {
    CHECK_FALSE(changed);
    OnlineDecision decision;
    decision.hidden = hidden;
    decision.heads = {head_of(i % 3)};
    decision.log_probability = std::log(odds_of(network, hidden, i % 3));
    decision.reward = i % 3 == 0 ? first : -1;
    changed = update.add(std::move(decision), network);
  }
  CHECK(changed == (first != -1));
  return network;
}

Task search_task() {
  Task task;
  task.key = {"", {.bin = {20}, .group_size = 2}};
  task.space = std::make_shared<const ActionSpace>(
      make_space({.backend = Backend::openmpi, .ranks = 2, .size = Bytes{1 << 20}}));
  return task;
}

/// A search by one of the policy's agents over settings that take their place in the list.
int updates_in_search(const char* name) {
  PolicyAgent agent(untrained_policy(1), {}, {}, name);
  std::vector<SearchTask> tasks(6);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    tasks[t].task = search_task();
    tasks[t].task.key.task.bin = {static_cast<int>(12 + 2 * t)};
    tasks[t].size = Bytes{std::uint64_t{1} << (12 + 2 * t)};
  }
  const auto before = agent.network().weights().at("implementation_skip");
  SearchOptions options;
  options.max_evaluations = 60;
  search(
      agent, tasks,
      [](const std::vector<Ask>& asks) {
        std::vector<Measured> results(asks.size());
        for (std::size_t i = 0; i < asks.size(); ++i)
          results[i].trial = {true, Micros(100.0 + 10 * static_cast<double>(asks[i].arm % 7))};
        return results;
      },
      options, nullptr);
  const auto after = agent.network().weights().at("implementation_skip");
  CHECK((before == after) == (agent.updates() == 0));
  return agent.updates();
}

}  // namespace

TEST_CASE("an online update raises what was rewarded and lowers what was not", "[E-101]") {
  const PolicyNetwork start = untrained_policy(1).network();
  const Eigen::VectorXf hidden = start.initial_state();
  const OnlineUpdateOptions options{.learning_rate = 0.05, .batch = 12};
  CHECK(odds_of(updated(options, 0), hidden, 0) > odds_of(start, hidden, 0));
  CHECK(odds_of(updated(options, -2), hidden, 0) < odds_of(start, hidden, 0));
  // All alike: nothing was better than anything else.
  CHECK(odds_of(updated(options, -1), hidden, 0) == odds_of(start, hidden, 0));
}

TEST_CASE("one batch moves a decision's probability no further than the clip allows", "[E-101]") {
  const PolicyNetwork start = untrained_policy(1).network();
  const Eigen::VectorXf hidden = start.initial_state();
  const double before = odds_of(start, hidden, 0);
  const OnlineUpdateOptions options{.learning_rate = 0.02, .epochs = 200, .batch = 12};
  const double ratio = odds_of(updated(options, 0), hidden, 0) / before;
  CHECK(ratio > 1.1);
  CHECK(ratio < 1.5);  // 1.2 by its own share and what the others lose; 2.9 without
}

TEST_CASE("only the online agent's weights follow the rewards of its own search", "[E-101]") {
  CHECK(updates_in_search(kOnlinePpo) > 0);
  CHECK(updates_in_search(kPpo) == 0);
}
