#include "tuner/agents/agent.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <set>

#include "tuner/action/spaces.hpp"
#include "tuner/agents/bandit.hpp"
#include "tuner/agents/coordinate_descent.hpp"
#include "tuner/agents/simple_agents.hpp"

using namespace dynamiccl;

namespace {

/// A task with a made-up time per arm: algorithms differ, segments have a best value.
struct Problem {
  Task task;
  std::vector<double> us;

  std::size_t best() const {
    return static_cast<std::size_t>(std::min_element(us.begin(), us.end()) - us.begin());
  }
};

Problem make_problem(int log2_size, std::uint64_t seed, const std::string& regime = "a") {
  Problem problem;
  SpaceOptions options;
  options.fanouts = {"2", "8"};
  problem.task.space = std::make_shared<const ActionSpace>(make_space(
      {.backend = Backend::openmpi, .collective = Collective::broadcast, .ranks = 4}, options));
  problem.task.key = {regime,
                      {.collective = Collective::broadcast, .bin = {log2_size}, .group_size = 4}};
  FastRandom random(seed);
  const ActionSpace& space = *problem.task.space;
  std::map<std::string, double> algorithm;
  for (const Action& arm : space.arms())
    algorithm.try_emplace(std::string(space.value(arm, "algorithm")), random.uniform(0, 0.8));
  for (const Action& arm : space.arms()) {
    double log_us = 4 + algorithm.at(std::string(space.value(arm, "algorithm")));
    const double segment = arm[*space.knob_index("segment_bytes")];
    log_us += 0.05 * (segment - 2) * (segment - 2) + 0.02 * arm[*space.knob_index("fanout")];
    problem.us.push_back(std::exp(log_us));
  }
  problem.us[0] = problem.us[problem.best()] * 1.3;
  return problem;
}

int run(Agent& agent, const Problem& problem, double noise, std::uint64_t seed) {
  FastRandom random(seed);
  int evaluations = 0;
  while (!agent.finished(problem.task) && evaluations < 1000) {
    const Choice choice = agent.act(problem.task);
    REQUIRE(choice.arm < problem.us.size());
    CHECK(choice.propensity > 0);
    CHECK(choice.propensity <= 1);
    agent.learn(problem.task, choice.arm,
                {true, Micros{problem.us[choice.arm] * std::exp(noise * random.normal())}});
    ++evaluations;
  }
  return evaluations;
}

}  // namespace

TEST_CASE("the default agent changes nothing and asks for nothing") {
  const auto agent = make_default_agent();
  const Problem problem = make_problem(20, 1);
  CHECK(agent->finished(problem.task));
  CHECK(agent->recommend(problem.task) == 0);
  CHECK(agent->act(problem.task).arm == 0);
}

TEST_CASE("exhaustive measures every arm and finds the best") {
  const Problem problem = make_problem(20, 1);
  AgentOptions options;
  options.repeats = 2;
  const auto agent = make_exhaustive_agent(options);
  CHECK(run(*agent, problem, 0, 1) == static_cast<int>(2 * problem.us.size()));
  CHECK(agent->recommend(problem.task) == problem.best());
}

TEST_CASE("random never repeats an arm and stops at its budget") {
  const Problem problem = make_problem(20, 1);
  AgentOptions options;
  options.max_evaluations = 7;
  CHECK(run(*make_random_agent(options), problem, 0, 1) == 7);
  options.max_evaluations = 0;
  const auto agent = make_random_agent(options);
  CHECK(run(*agent, problem, 0, 1) == static_cast<int>(problem.us.size()));
  CHECK(agent->recommend(problem.task) == problem.best());
}

TEST_CASE("a failed arm is neither recommended nor tried again") {
  const Problem problem = make_problem(20, 1);
  for (const char* name : {"random", "exhaustive", "coordinate-descent", "bandit"}) {
    CAPTURE(name);
    AgentOptions options;
    std::unique_ptr<Agent> agent =
        std::string(name) == "bandit"       ? std::make_unique<Bandit>(options, BeliefOptions{})
        : std::string(name) == "random"     ? make_random_agent(options)
        : std::string(name) == "exhaustive" ? make_exhaustive_agent(options)
                                            : std::make_unique<CoordinateDescent>(options);
    std::set<std::size_t> failed;
    for (int i = 0; i < 300 && !agent->finished(problem.task); ++i) {
      const std::size_t arm = agent->act(problem.task).arm;
      CHECK_FALSE(failed.contains(arm));
      const bool ok = arm == 0 || arm % 2 == 0;
      if (!ok) failed.insert(arm);
      agent->learn(problem.task, arm, {ok, Micros{ok ? problem.us[arm] : 0}});
    }
    CHECK_FALSE(failed.contains(agent->recommend(problem.task)));
  }
}

TEST_CASE("coordinate descent visits every subspace and ends in each at a local optimum",
          "[E-129][E-130][E-135]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Problem problem = make_problem(20, seed);
    AgentOptions options;
    options.seed = seed;
    CoordinateDescent agent(options);
    CHECK(agent.phase(problem.task) == DescentPhase::idle);
    const int evaluations = run(agent, problem, 0, seed);
    CHECK(agent.phase(problem.task) == DescentPhase::converged);
    // Unimodal in every dimension: one pass finds the optimum (E-192).
    CHECK(agent.recommend(problem.task) == problem.best());
    CHECK(evaluations > static_cast<int>(problem.task.space->subspaces().size()));
    CHECK(evaluations < static_cast<int>(problem.us.size()));
  }
}

TEST_CASE("coordinate descent starts at random points and takes larger steps after larger gains",
          "[E-131][E-132][X-65]") {
  const Problem problem = make_problem(20, 3);
  std::set<std::size_t> third_probes;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    AgentOptions options;
    options.seed = seed;
    CoordinateDescent agent(options);
    CHECK(agent.act(problem.task).arm == 0);
    // The default and basic_linear have one arm each: the third probe is a random start.
    agent.learn(problem.task, 0, {true, Micros{100}});
    agent.learn(problem.task, agent.act(problem.task).arm, {true, Micros{100}});
    third_probes.insert(agent.act(problem.task).arm);
  }
  CHECK(third_probes.size() > 1);

  // One knob with 20 values: a gain of 100 % moves 20 places, one of 10 % two.
  std::vector<std::string> values{"default"};
  for (int i = 1; i < 20; ++i) values.push_back(std::to_string(1 << i));
  const auto line = std::make_shared<const ActionSpace>(
      "line", std::vector<Knob>{{.name = "channels", .target = "call.channels", .values = values}},
      [](const ActionSpace&, const Action&) { return true; });
  Task task{.key = {"a", {}}, .space = line, .state = {}, .prior_log_us = {}};
  CoordinateDescent agent({});
  agent.learn(task, 0, {true, Micros{1000}});
  const std::size_t start = agent.act(task).arm;
  REQUIRE(start > 0);
  REQUIRE(start < 16);
  agent.learn(task, start, {true, Micros{1000}});
  CHECK(agent.act(task).arm == start + 1);  // 0.01 of 20 values is less than one place
  agent.learn(task, start + 1, {true, Micros{1000 / 1.1}});
  CHECK(agent.act(task).arm == start + 3);  // BwDelta / Bw = 0.1 of 20 values
}

TEST_CASE("reopening a key makes an agent search it again", "[E-108]") {
  const Problem problem = make_problem(20, 1);
  AgentOptions options;
  CoordinateDescent descent(options);
  Bandit bandit(options, {});
  for (Agent* agent : {static_cast<Agent*>(&descent), static_cast<Agent*>(&bandit)}) {
    run(*agent, problem, 0.01, 1);
    CHECK(agent->finished(problem.task));
    agent->reopen(problem.task.key);
    CHECK_FALSE(agent->finished(problem.task));
    CHECK(agent->recommend(problem.task) == 0);
  }
}

TEST_CASE("the posterior is that of Gaussian regression computed directly") {
  const Problem problem = make_problem(16, 2);
  const Problem other = make_problem(18, 2);
  BeliefOptions options;
  TimeBelief belief(options);
  const BeliefView view = make_view(problem.task);
  const BeliefView view_other = make_view(other.task);
  CHECK(belief.posterior(view).mean.isZero());
  const Posterior before = belief.posterior(view_other);
  const Posterior first = belief.posterior(view);
  belief.observe(view_other, 5, 1.0);
  // One observation: mean = k / (k0 + noise) * y.
  const auto [mean_of_other, variance_of_other] = belief.marginal(view_other, 5);
  const double k0 = before.covariance(5, 5);
  const auto squared = [](double x) { return x * x; };
  const double pieces = (*view_other.arms)[5].pieces;
  CHECK(std::abs(k0 - (squared(options.regime_sd) + squared(options.level_sd) +
                       squared(options.task_sd) + squared(options.implementation_sd) +
                       squared(options.resource_sd) + squared(options.pieces_sd * pieces) +
                       squared(options.arm_sd))) < 1e-9);
  const double noise = squared(options.noise_sd);
  CHECK(std::abs(mean_of_other - k0 / (k0 + noise)) < 1e-9);
  CHECK(std::abs(variance_of_other - (k0 - k0 * k0 / (k0 + noise))) < 1e-9);
  belief.observe(view, 3, 2.0);
  belief.observe(view, 7, 2.5);
  const Posterior after = belief.posterior(view);
  for (Eigen::Index a = 0; a < after.mean.size(); ++a) {
    const auto [mean, variance] = belief.marginal(view, static_cast<std::size_t>(a));
    CHECK(std::abs(mean - after.mean[a]) < 1e-9);
    CHECK(std::abs(variance - after.covariance(a, a)) < 1e-9);
    CHECK(after.covariance(a, a) < first.covariance(a, a));
  }
  const PosteriorMargins margins = belief.margins(view);
  CHECK((margins.mean - after.mean).cwiseAbs().maxCoeff() < 1e-9);
  CHECK((margins.variance - after.covariance.diagonal()).cwiseAbs().maxCoeff() < 1e-9);
  CHECK((belief.covariance_with(view, margins, 3) - after.covariance.col(3)).cwiseAbs().maxCoeff() <
        1e-9);
  // Brought up to date after each measurement or after all of them: the same.
  PosteriorMargins grown = margins;
  for (std::size_t a = 0; a < 6; ++a) {
    belief.observe(a % 2 == 0 ? view : view_other, a, 1.0 + 0.1 * static_cast<double>(a));
    if (a != 3) belief.refresh(view, grown);
  }
  const PosteriorMargins at_once = belief.margins(view);
  CHECK((grown.mean - at_once.mean).cwiseAbs().maxCoeff() < 1e-9);
  CHECK((grown.variance - at_once.variance).cwiseAbs().maxCoeff() < 1e-9);
  const Posterior joint = belief.posterior(view, grown);
  const Posterior anew = belief.posterior(view);
  CHECK((joint.mean - anew.mean).cwiseAbs().maxCoeff() < 1e-9);
  CHECK((joint.covariance - anew.covariance).cwiseAbs().maxCoeff() < 1e-9);
  for (std::size_t a = 0; a < 6; ++a)
    CHECK(std::abs(at_once.mean[static_cast<Eigen::Index>(a)] - belief.marginal(view, a).first) <
          1e-9);
  const std::uint64_t version = belief.version();
  belief.forget(view.task.id);
  CHECK(belief.version() != version);
  CHECK(belief.observations() == 1 + 3);
}

TEST_CASE("the bandit finds a near-best arm with a fraction of the evaluations", "[E-100]") {
  int evaluations = 0;
  int arms = 0;
  int good = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Problem problem = make_problem(20, seed);
    AgentOptions options;
    options.seed = seed;
    Bandit bandit(options, {});
    evaluations += run(bandit, problem, 0.02, seed);
    arms += static_cast<int>(problem.us.size());
    good += problem.us[bandit.recommend(problem.task)] < 1.06 * problem.us[problem.best()] ? 1 : 0;
  }
  CHECK(evaluations * 2 < arms);
  CHECK(good >= 9);
}

TEST_CASE("what was learnt at one size and regime helps at the next") {
  int first = 0;
  int second = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    AgentOptions options;
    options.seed = seed;
    Bandit bandit(options, {});
    first += run(bandit, make_problem(20, seed), 0.02, seed);
    second += run(bandit, make_problem(21, seed), 0.02, seed + 100);
    CHECK(bandit.recommend(make_problem(22, seed).task) == 0);  // nothing was measured there
  }
  CHECK(second * 2 < first);
}

TEST_CASE("where nothing beats the default, the default stays") {
  int left = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Problem problem = make_problem(20, seed);
    problem.us[0] = problem.us[problem.best()] * 0.999;
    AgentOptions options;
    options.seed = seed;
    Bandit bandit(options, {});
    run(bandit, problem, 0.03, seed);
    left += bandit.recommend(problem.task) != 0 ? 1 : 0;
  }
  CHECK(left <= 2);
}
