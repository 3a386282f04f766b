#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "plugin/agreement/member.hpp"
#include "tuner/export/export.hpp"
#include "tuner/online/call_driver.hpp"

namespace dynamiccl::testing {

inline constexpr std::size_t kAllReduce = 4;

/// Two ranks whose calls take what a made-up machine says of their setting.
struct Job {
  std::string folder = std::filesystem::temp_directory_path() / "online-learner-XXXXXX";
  std::unique_ptr<Member> ranks[2];
  std::mt19937 random{7};
  int differing = 0;
  double pace = 1;             ///< all calls take so much longer
  double wanted_channels = 8;  ///< of large messages

  CallTable start;

  explicit Job(const CallTable& started_with = {}) : start(started_with) {
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    for (auto& rank : ranks) rank = std::make_unique<Member>(region());
  }
  ~Job() { std::filesystem::remove_all(folder); }
  std::shared_ptr<Region> region() const {
    std::string problem;
    return Region::open_or_make(folder, {5, 2, 1, start == CallTable{} ? nullptr : &start},
                                problem);
  }
  /// Large messages want 8 channels and Ring/Simple; small ones the library's own choice.
  double us(std::size_t bin, CallCell cell) {
    const double channels = cell.channels == 0 ? 2 : cell.channels;
    const double wanted = bin >= 20 ? wanted_channels : 2;
    double time =
        pace * (bin >= 20 ? 1000 : 20) * (1 + 0.4 * std::abs(std::log2(channels / wanted)));
    if (cell.protocol == 0 && bin >= 20) time *= 3;
    if (bin < 20 && cell.algorithm != CallCell::kAny) time *= 1.3;

    return time * std::uniform_real_distribution<double>(0.98, 1.02)(random);
  }
  void call(std::size_t bin) {
    CallCell cells[2];
    for (int r = 0; r < 2; ++r) cells[r] = ranks[r]->decide(kAllReduce, bin);
    if (!(cells[0] == cells[1])) ++differing;
    for (int r = 0; r < 2; ++r)
      ranks[r]->record(kAllReduce, bin, ranks[r]->epoch(),
                       static_cast<std::uint64_t>(us(bin, cells[r]) * 1000));
  }
};

/// Large messages alone, with a neighbour that comes and goes; the trigger hears every call.
struct ChangingJob {
  Job job;
  std::int64_t ns = 1'000'000'000;
  std::vector<CallTable> tables{};
  std::vector<DecisionRecord> decisions{};
  std::vector<std::string> events{};
  std::vector<std::size_t> also{};  ///< further sizes that are called, unheard by the trigger
  /// Of the table in force.
  std::function<std::optional<StepReading>()> reading = [] {
    return StepReading{50, Micros(200'000), 0.01};
  };
  std::optional<Micros> latest{};  ///< the last step, under whichever table
  std::unique_ptr<CallDriver> learner;

  explicit ChangingJob(const SpaceOptions& space, double learn_cost = 0.1, int most_rounds = 0,
                       const CallTable& start = {}, std::optional<Micros> gloo = std::nullopt)
      : job(start) {
    LearnerOptions options;
    if (gloo) options.gloo_floor = [gloo](std::size_t, std::size_t) { return gloo; };
    options.on_event = [this](const std::string& text) { events.push_back(text); };
    options.start = start;
    options.calls_per_trial = 5;
    options.space = space;
    options.learn_cost = learn_cost;
    options.least_horizon = 100;
    options.most_rounds = most_rounds;
    options.now_ns = [this] { return ns; };
    options.steps = [this](std::uint32_t) { return reading(); };
    options.recent_step = [this](std::uint32_t) { return Micros(200'000 * job.pace); };
    options.latest_step = [this] { return latest; };
    options.on_decision = [this](const DecisionRecord& one) { decisions.push_back(one); };
    learner = std::make_unique<CallDriver>(job.region(), options);
  }
  void call() {
    const CallCell cell = learner->table().cells[kAllReduce][26];
    const double us = job.us(26, cell);
    job.call(26);
    for (const std::size_t bin : also) job.call(bin);
    ns += static_cast<std::int64_t>(us * 1000);
    learner->hear(kAllReduce, 26, learner->epoch(), Micros(us));
    REQUIRE(learner->step());
    if (tables.empty() || !(tables.back() == learner->table())) tables.push_back(learner->table());
  }
  void settle(int calls) {
    for (int i = 0; i < calls && !learner->finished(); ++i) call();
    REQUIRE(learner->finished());
  }
  /// Until an alarm.
  void change(double pace, double channels) {
    for (int i = 0; i < 150; ++i) call();
    tables.clear();
    job.pace = pace;
    job.wanted_channels = channels;
    const int before = learner->alarms();
    int calls = 0;
    while (learner->alarms() == before && calls < 200) {
      call();
      ++calls;
    }
    INFO(calls << " calls");
    REQUIRE(learner->alarms() == before + 1);
    CHECK(calls <= 50);
  }
  [[nodiscard]] int channels() const { return learner->table().cells[kAllReduce][26].channels; }
  /// What the learner says it has learnt is what the ranks run under.
  void check_in_force() const {
    for (const TableEntry& entry : learner->entries()) {
      INFO(entry.key.task.text() << " " << entry.arm);
      const auto bin = static_cast<std::size_t>(entry.key.task.bin.log2);
      CHECK(call_cell(entry.setting) == learner->table().cells[kAllReduce][bin]);
    }
  }
};

inline SpaceOptions some_channels() {
  SpaceOptions space;
  space.channels = {"1", "4", "8", "16", "32"};
  return space;
}

}  // namespace dynamiccl::testing
