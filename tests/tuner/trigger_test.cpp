#include "tuner/trigger/trigger.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/statistics/fast_random.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/agents/agent.hpp"

using namespace dynamiccl;

namespace {

/// Latencies as machines give them: a level, correlated noise, lone slow calls and short bursts.
class Latencies {
 public:
  Latencies(double us, double sd, double correlation, std::uint64_t seed)
      : log_us_(std::log(us)), sd_(sd), correlation_(correlation), random_(seed) {}
  Micros next(double slowdown = 1) {
    noise_ =
        correlation_ * noise_ + sd_ * std::sqrt(1 - correlation_ * correlation_) * random_.normal();
    double log_us = log_us_ + noise_ + std::log(slowdown);
    if (random_.chance(0.01)) log_us += random_.uniform(0, 2);
    if (burst_ == 0 && random_.chance(0.0005)) burst_ = 3;
    if (burst_ > 0) {
      --burst_;
      log_us += 1.5;
    }
    return Micros{std::exp(log_us)};
  }

 private:
  double log_us_;
  double sd_;
  double correlation_;
  FastRandom random_;
  double noise_ = 0;
  int burst_ = 0;
};

int alarms(Trigger& trigger, Latencies& source, int calls, double slowdown = 1) {
  int count = 0;
  for (int i = 0; i < calls; ++i)
    if (trigger.add(source.next(slowdown)).alarm) ++count;
  return count;
}

}  // namespace

TEST_CASE("stationary noise alarms at most once in 10,000 calls", "[E-94]") {
  int total = 0;
  int calls = 0;
  for (const double sd : {0.02, 0.08, 0.2})
    for (const double correlation : {0.0, 0.5, 0.8})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        Trigger trigger;
        Latencies source(80, sd, correlation, seed);
        total += alarms(trigger, source, 30'000);
        calls += 30'000;
      }
  INFO(total << " alarms in " << calls << " calls");
  CHECK(total <= calls / 10'000);
}

TEST_CASE("a load that halves the pace of calls is noticed within 50 calls", "[E-94]") {
  int noticed = 0;
  int traces = 0;
  for (const double sd : {0.02, 0.05, 0.1})
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      Trigger trigger;
      Latencies source(80, sd, 0.3, seed);
      alarms(trigger, source, 2'000 + static_cast<int>(seed * 13 % 50));
      ++traces;
      if (alarms(trigger, source, 50, 2) > 0) ++noticed;
    }
  INFO(noticed << " of " << traces);
  CHECK(noticed * 100 >= traces * 95);
}

TEST_CASE("load that goes away is a change too, and the level is learnt anew", "[E-94]") {
  Trigger trigger;
  Latencies source(80, 0.05, 0.3, 3);
  alarms(trigger, source, 1'000, 2);
  CHECK(alarms(trigger, source, 60, 1) == 1);
  CHECK(alarms(trigger, source, 3'000, 1) == 0);
}

TEST_CASE("a gross change is noticed while a level is still learnt anew", "[E-94]") {
  int noticed = 0;
  int traces = 0;
  int unasked = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Trigger trigger;
    Latencies source(80, 0.1, 0.3, seed);
    alarms(trigger, source, 1'000);
    bool before = false;
    for (int i = 0; i < 1'000 && !before; ++i) before = trigger.add(source.next(2)).alarm;
    UNSCOPED_INFO("seed " << seed << (before ? "" : ": the first change was not noticed"));
    unasked += alarms(trigger, source, 30 + static_cast<int>(seed), 2);
    ++traces;
    if (alarms(trigger, source, 50, 8) > 0) ++noticed;
  }
  INFO(noticed << " of " << traces << ", " << unasked << " alarms without a change");
  CHECK(noticed * 100 >= traces * 95);
  CHECK(unasked == 0);
}

TEST_CASE("a small change is no alarm and becomes the level", "[E-94]") {
  int noticed = 0;
  int unasked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Trigger trigger;
    Latencies source(80, 0.1, 0.3, seed);
    alarms(trigger, source, 1'000);
    unasked += alarms(trigger, source, 2'000, 1.4);
    // A change against the new level, which would be none against the old one.
    noticed += alarms(trigger, source, 200, 0.65) > 0 ? 1 : 0;
  }
  CHECK(unasked == 0);
  CHECK(noticed >= 19);
}

TEST_CASE("a spell that passes is no alarm", "[E-94]") {
  Trigger trigger;
  Latencies source(80, 0.1, 0.3, 7);
  alarms(trigger, source, 1'000);
  int found = 0;
  for (int spell = 0; spell < 20; ++spell) {
    found += alarms(trigger, source, 20, 12);
    found += alarms(trigger, source, 400);
  }
  CHECK(found == 0);
}

TEST_CASE("interference is a level, not a bit", "[E-60][E-96]") {
  const auto level_at = [](double slowdown) {
    TriggerOptions options;
    options.threshold = 1e9;  // no alarm: the level alone
    Trigger trigger(options);
    Latencies source(80, 0.03, 0.2, 5);
    alarms(trigger, source, 500);
    alarms(trigger, source, 100, slowdown);
    return trigger.state().interference;
  };
  CHECK(level_at(1.0) < 0.05);
  CHECK(level_at(1.25) > 0.1);
  CHECK(level_at(1.25) < 0.3);
  CHECK(level_at(2.0) > 0.4);
  CHECK(level_at(2.0) < 0.6);
}

TEST_CASE("what is no latency is left out") {
  Trigger trigger;
  CHECK_FALSE(trigger.add(Micros{0}).alarm);
  CHECK_FALSE(trigger.add(Micros{-1}).alarm);
  CHECK_FALSE(trigger.add(Micros{NAN}).alarm);
  CHECK_FALSE(trigger.add(Micros{INFINITY}).alarm);
  CHECK(trigger.calls() == 0);
}

TEST_CASE("an alarm re-opens a frozen key", "[E-107][E-108]") {
  Task task;
  task.space = std::make_shared<const ActionSpace>(make_space({.backend = Backend::gloo}));
  task.key = {"a", {.bin = {20}, .group_size = 2, .backend = Backend::gloo}};
  const auto agent = make_agent("bandit", {});
  const auto us = [&](std::size_t arm, bool loaded) {
    return arm == 1 ? (loaded ? 150.0 : 60.0) : 100.0;
  };
  const auto settle = [&](bool loaded) {
    for (int i = 0; i < 200 && !agent->finished(task); ++i) {
      const std::size_t arm = agent->act(task).arm;
      agent->learn(task, arm, {true, Micros{us(arm, loaded)}});
    }
    return agent->recommend(task);
  };
  REQUIRE(settle(false) == 1);
  REQUIRE(agent->finished(task));
  Trigger trigger;
  Latencies calm(60, 0.03, 0.3, 1);
  REQUIRE(alarms(trigger, calm, 500) == 0);
  REQUIRE(alarms(trigger, calm, 50, 2.5) > 0);
  agent->reopen(task.key);
  CHECK_FALSE(agent->finished(task));
  CHECK(settle(true) != 1);
}
