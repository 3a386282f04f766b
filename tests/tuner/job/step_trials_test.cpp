// Steps whose length the settings of their calls decide, with the noise of a host that others use.
#include "tuner/job/step_trials.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <random>

#include "tuner/action/spaces.hpp"

using namespace dynamiccl;

namespace {

StepTask task_of(std::uint64_t bytes) {
  SpaceContext context;
  context.backend = Backend::openmpi;
  context.size = Bytes(bytes);
  SpaceOptions options;
  options.own = false;
  options.scopes = {KnobScope::communicator, KnobScope::call};
  StepTask one;
  one.task.key = {"here",
                  {Collective::allreduce, SizeBin::of(context.size), 2, 1, Architecture::ring,
                   Backend::openmpi}};
  one.task.space = std::make_shared<ActionSpace>(make_space(context, options));
  one.usable.assign(one.task.space->arms().size(), true);
  return one;
}

std::size_t arm_named(const StepTask& task, const std::string& name) {
  const ActionSpace& space = *task.task.space;
  for (std::size_t a = 0; a < space.arms().size(); ++a)
    if (space.text(space.arms()[a]) == name) return a;
  FAIL("no arm " << name);
  return 0;
}

/// A trainer: 10 ms of computation and the calls of its tasks one after the other.
struct Trainer {
  std::vector<double> default_us;
  /// Of a task's default, by arm; 1 where nothing is said.
  std::vector<std::map<std::size_t, double>> factor;
  double noise = 0.03;
  double pace = 1;
  std::mt19937 random{7};

  StepSeen step(const std::vector<std::uint32_t>& arms) {
    std::lognormal_distribution<double> luck{0, noise};
    StepSeen seen;
    seen.step_us = 10'000;
    seen.refused.assign(arms.size(), false);
    for (std::size_t t = 0; t < arms.size(); ++t) {
      const auto found = factor[t].find(arms[t]);
      const double times = found == factor[t].end() ? 1 : found->second;
      seen.call_us.push_back(default_us[t] * times * pace * luck(random));
      seen.step_us += seen.call_us.back();
    }
    seen.step_us *= luck(random);
    seen.loss = 2.3 * std::exp(-0.001 * ++steps);
    return seen;
  }
  int steps = 0;
};

int run_until_frozen(StepTrials& learner, Trainer& trainer, int most) {
  int steps = 0;
  while (!learner.frozen() && steps < most) {
    learner.add(trainer.step(learner.arms()));
    ++steps;
  }
  return steps;
}

}  // namespace

TEST_CASE("multiprocessors that a setting's calls take are in its reward", "[E-88][E-92]") {
  std::vector<DecisionRecord> decisions;
  StepTrialsOptions options;
  options.on_decision = [&](const DecisionRecord& one) { decisions.push_back(one); };
  const StepTask task = task_of(8 << 20);
  // Two settings are as fast as each other; the one takes half of the GPU, the other nothing.
  const std::size_t greedy = arm_named(task, "ring");
  Trainer trainer{{30'000}, {{}}};
  trainer.noise = 0;
  StepTrials learner({task}, options);
  for (int i = 0; i < 60 && !learner.frozen(); ++i) {
    StepSeen seen = trainer.step(learner.arms());
    if (i > 5) seen.sm_share = learner.arms()[0] == greedy ? 0.5 : 0.0;
    learner.add(seen);
  }
  bool tried = false;
  for (const DecisionRecord& one : decisions) {
    if (one.kind == "final" || one.arm.find("ring") != 0) continue;
    if (one.arm != "ring") continue;
    tried = true;
    CHECK(one.reward_terms.at("sm") == -0.5 * RewardWeights{}.sm);
  }
  CHECK(tried);
  CHECK(decisions.front().reward_terms.at("sm") == 0);
}

TEST_CASE("the library's own choice is never called slower than itself", "[E-83]") {
  Trainer trainer{{30'000}, {{}}};
  trainer.noise = 0.8;  // a busy host: references are far apart
  StepTrialsOptions options;
  int own = 0;
  options.on_decision = [&](const DecisionRecord& record) {
    // A final row's guard says why what was compared did not stay.
    if (record.arm != "library" || record.kind == "final") return;
    ++own;
    CHECK(record.guard != "slower-than-default");
  };
  StepTrials learner({task_of(8 << 20)}, options);
  run_until_frozen(learner, trainer, 300);
  CHECK(own > 5);
}

TEST_CASE("what makes the step shorter is found, confirmed and frozen", "[e-83][e-91]") {
  std::vector<StepTask> tasks{task_of(8 << 20), task_of(64 << 10)};
  const std::size_t fast = arm_named(tasks[0], "ring");
  Trainer trainer{{30'000, 8'000}, {{{fast, 0.6}}, {}}};
  StepTrialsOptions options;
  std::map<std::string, int> kinds;
  options.on_decision = [&](const DecisionRecord& record) {
    ++kinds[record.kind];
    // A step's own time, held against the step's under the default.
    if (record.time_us) CHECK(*record.time_us > 10'000);
    if (record.reward) CHECK(*record.reward < 0);
  };
  StepTrials learner(tasks, options);
  const int steps = run_until_frozen(learner, trainer, 500);
  REQUIRE(learner.frozen());
  CHECK(learner.frozen_after() == steps);
  CHECK(learner.arms() == std::vector<std::uint32_t>{static_cast<std::uint32_t>(fast), 0});
  REQUIRE(learner.gain(0));
  CHECK(learner.gain(0)->value < 0.85);
  CHECK(kinds["final"] == 2);
  CHECK(kinds["reference"] >= 20);
  CHECK(kinds["explore"] > 0);
}

TEST_CASE("a final choice says what its search shows of the others, as all searches do",
          "[e-83][e-102]") {
  std::vector<StepTask> tasks{task_of(8 << 20), task_of(64 << 10)};
  const std::size_t fast = arm_named(tasks[0], "ring");
  // Of the small ones the library takes nothing but its own choice.
  std::fill(tasks[1].usable.begin() + 1, tasks[1].usable.end(), false);
  Trainer trainer{{30'000, 8'000}, {{{fast, 0.6}}, {}}};
  StepTrialsOptions options;
  std::vector<DecisionRecord> finals;
  options.on_decision = [&](const DecisionRecord& record) {
    CHECK(record.candidates.contains("flags") == (record.kind == "final"));
    if (record.kind == "final") finals.push_back(record);
  };
  StepTrials learner(tasks, options);
  run_until_frozen(learner, trainer, 500);
  REQUIRE(finals.size() == 2);
  CHECK(finals[0].candidates.at("flags").empty());  // kept
  CHECK(finals[0].candidates.at("tried") >= 2);
  CHECK(finals[0].candidates.at("arms") > finals[0].candidates.at("tried"));
  CHECK(finals[1].candidates.at("flags") == nlohmann::json::array({std::string(kNothingToSet)}));
  CHECK(finals[1].candidates.at("tried") == 1);
}

TEST_CASE("what a search leaves open is said to be, whatever its guard") {
  for (unsigned seed = 0; seed < 4; ++seed) {
    Trainer trainer{{30'000}, {{}}, 0.08, 1, std::mt19937(seed)};
    StepTrialsOptions options;
    options.agent_options.seed = seed;
    std::vector<DecisionRecord> finals;
    options.on_decision = [&](const DecisionRecord& record) {
      if (record.kind == "final") finals.push_back(record);
    };
    StepTrials learner({task_of(8 << 20)}, options);
    run_until_frozen(learner, trainer, 1000);
    REQUIRE(finals.size() == 1);
    const bool kept = learner.arms()[0] != 0;
    CHECK(finals[0].candidates.at("flags").empty() == kept);
    CHECK((finals[0].guard == "pass") == (kept || !learner.gain(0)));
  }
}

TEST_CASE("nothing is kept where no setting is faster") {
  int kept = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    Trainer trainer{{30'000}, {{}}, 0.08, 1, std::mt19937(seed)};
    StepTrialsOptions options;
    options.agent_options.seed = seed;
    StepTrials learner({task_of(8 << 20)}, options);
    run_until_frozen(learner, trainer, 1000);
    REQUIRE(learner.frozen());
    kept += learner.arms()[0] == 0 ? 0 : 1;
  }
  // One in forty by chance.
  CHECK(kept <= 1);
}

TEST_CASE("calls that hardly matter are left alone") {
  Trainer trainer{{30'000, 100}, {{}, {}}};
  StepTrialsOptions options;
  options.on_decision = [](const DecisionRecord& record) {
    CHECK(record.task_key.find("2^23") != std::string::npos);
  };
  StepTrials learner({task_of(8 << 20), task_of(64)}, options);
  run_until_frozen(learner, trainer, 1000);
  CHECK(learner.frozen());
}

TEST_CASE("a setting that the library refuses is not tried again", "[e-83]") {
  std::vector<StepTask> tasks{task_of(8 << 20)};
  const std::size_t refused = arm_named(tasks[0], "ring");
  tasks[0].usable[arm_named(tasks[0], "rabenseifner")] = false;
  Trainer trainer{{30'000}, {{{refused, 0.5}}}};
  StepTrialsOptions options;
  int failed = 0;
  options.on_decision = [&](const DecisionRecord& record) {
    failed += record.guard == "failed" ? 1 : 0;
    CHECK(record.arm != "rabenseifner");
  };
  StepTrials learner(tasks, options);
  for (int i = 0; i < 1000 && !learner.frozen(); ++i) {
    StepSeen seen = trainer.step(learner.arms());
    seen.refused[0] = learner.arms()[0] == refused;
    learner.add(seen);
  }
  CHECK(learner.frozen());
  CHECK(failed <= 1);
  CHECK(learner.arms()[0] != refused);
}

TEST_CASE("a loss that is no number under a setting ends all trying", "[e-91]") {
  Trainer trainer{{30'000}, {{}}};
  StepTrials learner({task_of(8 << 20)}, {});
  for (int i = 0; i < 200; ++i) {
    StepSeen seen = trainer.step(learner.arms());
    if (learner.arms()[0] != 0) seen.loss = NAN;
    learner.add(seen);
  }
  CHECK(learner.frozen());
  CHECK(learner.arms()[0] == 0);
}

TEST_CASE("a link that gets slower opens the search again", "[e-83]") {
  Trainer trainer{{30'000}, {{}}};
  StepTrials learner({task_of(8 << 20)}, {});
  run_until_frozen(learner, trainer, 1000);
  for (int i = 0; i < 300; ++i) learner.add(trainer.step(learner.arms()));
  REQUIRE(learner.alarms() == 0);
  trainer.pace = 3;
  const std::size_t fast = arm_named(learner.tasks()[0], "recursive_doubling");
  trainer.factor[0] = {{fast, 0.5}};
  for (int i = 0; i < 600; ++i) learner.add(trainer.step(learner.arms()));
  CHECK(learner.alarms() >= 1);
  CHECK(learner.arms()[0] == fast);
}

TEST_CASE("a choice is stored with the one before it, its latencies and what the trigger saw",
          "[e-08][e-55][e-57][e-58][e-59][e-60][e-85][e-95][e-96]") {
  Trainer trainer{{30'000}, {{}}};
  StepTask task = task_of(8 << 20);
  task.task.state.watched = true;
  std::vector<DecisionRecord> decisions;
  StepTrialsOptions options;
  options.on_decision = [&](const DecisionRecord& record) { decisions.push_back(record); };
  StepTrials learner({task}, options);
  run_until_frozen(learner, trainer, 1000);
  REQUIRE(decisions.size() > 10);
  CHECK_FALSE(decisions[0].state.contains("last_choice"));
  const auto& algorithms = task.task.space->knobs()[*task.task.space->knob_index("algorithm")];
  for (std::size_t d = 1; d < decisions.size(); ++d) {
    INFO(decisions[d - 1].arm << ", then " << decisions[d].arm);
    const double place = decisions[d].state.at("last_choice")[0];
    const auto before = static_cast<std::size_t>(
        std::lround(place * static_cast<double>(algorithms.values.size() - 1)));
    const std::string& name = before == 0 ? "library" : algorithms.values[before];
    CHECK(decisions[d - 1].arm.starts_with(name));
  }
  // The newest eight are kept, each over what the default takes.
  const auto& history = decisions.back().state.at("latency_history");
  REQUIRE(history.size() == 9);
  CHECK(history[8] == 1);
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::abs(history[i].get<double>()) < 0.3);
  const DecisionRecord& quiet = decisions[5];
  CHECK(quiet.state.at("congestion")[0] == 0);
  CHECK(quiet.reward_terms.at("congestion") == 0);

  for (int i = 0; i < 300; ++i) learner.add(trainer.step(learner.arms()));
  trainer.pace = 3;
  decisions.clear();
  for (int i = 0; i < 200; ++i) learner.add(trainer.step(learner.arms()));
  REQUIRE(learner.alarms() >= 1);
  REQUIRE(!decisions.empty());
  const DecisionRecord& first = decisions.front();
  CHECK(first.state.at("cusum_score")[0] >= 1);
  CHECK(first.state.at("reconstruction_error")[0] > 1);
  CHECK(first.state.at("congestion")[0] >= 1);
  // Two thirds of the bandwidth are lost, by the medians of some calls.
  CHECK(first.state.at("interference")[0] > 0.4);
  CHECK(first.state.at("interference")[0] < 0.9);
  CHECK(first.reward_terms.at("congestion") < 0);
}

TEST_CASE("steps that still run under what was said before teach nothing", "[e-83]") {
  Trainer trainer{{30'000}, {{}}};
  StepTrialsOptions options;
  std::vector<double> references_us;
  bool reopened = false;
  options.on_decision = [&](const DecisionRecord& record) {
    if (reopened && record.kind == "reference" && record.time_us)
      references_us.push_back(*record.time_us);
  };
  StepTrials learner({task_of(8 << 20)}, options);
  const std::size_t slow = arm_named(learner.tasks()[0], "ring");
  const std::size_t fast = arm_named(learner.tasks()[0], "recursive_doubling");
  trainer.factor[0] = {{fast, 0.5}};
  run_until_frozen(learner, trainer, 1000);
  REQUIRE(learner.arms()[0] == fast);
  for (int i = 0; i < 300; ++i) learner.add(trainer.step(learner.arms()));
  // Now the choice is the slow one, and ranks are spoken to in every 16th frozen step alone.
  trainer.pace = 3;
  trainer.factor[0] = {{fast, 1.5}, {slow, 1}};
  std::vector<std::uint32_t> in_force = learner.arms();
  int silent = 16;
  for (int i = 0; i < 400; ++i) {
    if (silent == 0) {
      in_force = learner.arms();
      silent = learner.frozen() ? 16 : 1;
    }
    --silent;
    StepSeen seen = trainer.step(in_force);
    seen.arms = in_force;
    learner.add(seen);
    reopened = reopened || learner.alarms() > 0;
  }
  REQUIRE(learner.alarms() >= 1);
  REQUIRE(references_us.size() >= 10);
  // The default takes 100 ms a step, what was in force before it 145 ms.
  for (const double us : references_us) CHECK(us < 125'000);
}

TEST_CASE("what the library does not take is not tried after an alarm either", "[e-83]") {
  Trainer trainer{{30'000}, {{}}};
  StepTask task = task_of(8 << 20);
  const std::size_t barred = arm_named(task, "recursive_doubling");
  task.usable[barred] = false;
  StepTrials learner({task}, {});
  run_until_frozen(learner, trainer, 1000);
  for (int i = 0; i < 300; ++i) learner.add(trainer.step(learner.arms()));
  trainer.pace = 3;
  for (int i = 0; i < 600; ++i) {
    learner.add(trainer.step(learner.arms()));
    CHECK(learner.arms()[0] != barred);
  }
  CHECK(learner.alarms() >= 1);
}

TEST_CASE("where switches sum no step is tried under another setting, and the log says why",
          "[E-144]") {
  std::vector<StepTask> tasks{task_of(8 << 20), task_of(64 << 10)};
  for (StepTask& one : tasks) one.task.state.ina_active = true;
  // All that is searched elsewhere would be faster.
  Trainer trainer{{30'000, 8'000}, {{{arm_named(tasks[0], "ring"), 0.5}}, {}}};
  std::vector<DecisionRecord> decisions;
  StepTrialsOptions options;
  options.on_decision = [&](const DecisionRecord& one) { decisions.push_back(one); };
  StepTrials learner(tasks, options);
  for (int step = 0; step < 1000; ++step) {
    // Calls that change re-open no search either.
    trainer.pace = step < 500 ? 1 : 3;
    learner.add(trainer.step(learner.arms()));
    REQUIRE(learner.arms() == std::vector<std::uint32_t>{0, 0});
  }
  CHECK(learner.frozen());
  CHECK(learner.alarms() == 0);
  REQUIRE(decisions.size() == 2);
  for (const DecisionRecord& one : decisions) {
    CHECK(one.kind == "final");
    CHECK(one.guard == "ina-passthrough");
    CHECK(one.arm == "library");
  }
}
