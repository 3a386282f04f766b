#include "tuner/nccl/online_learner.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "tuner/control/member.hpp"
#include "tuner/export/export.hpp"
#include "tuner/nccl/job_leader.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kAllReduce = 4;

/// Two ranks whose calls take what a made-up machine says of their setting.
struct Job {
  std::string folder = fs::temp_directory_path() / "online-learner-XXXXXX";
  std::unique_ptr<Member> ranks[2];
  std::mt19937 random{7};
  int differing = 0;
  double pace = 1;             ///< all calls take so much longer
  double wanted_channels = 8;  ///< of large messages

  CallTable start;

  explicit Job(const CallTable& started_with = {}) : start(started_with) {
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    for (auto& rank : ranks) rank = std::make_unique<Member>(region(), 0);
  }
  ~Job() { fs::remove_all(folder); }
  std::shared_ptr<Region> region() const {
    std::string problem;
    return Region::open_or_make(folder, {5, 2, 1, false, start == CallTable{} ? nullptr : &start},
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

}  // namespace

TEST_CASE("a leader learns each size's setting while the job runs", "[E-116][E-120]") {
  Job job;
  LearnerOptions options;
  options.calls_per_trial = 5;
  options.space.channels = {"1", "4", "8", "16"};
  OnlineLearner learner(job.region(), options);
  int calls = 0;
  while (calls < 60'000 && !learner.finished()) {
    job.call(26);
    job.call(10);
    calls += 2;
    REQUIRE(learner.step());
  }
  INFO(learner.rounds() << " rounds, " << calls << " calls");
  CHECK(learner.finished());
  CHECK(job.differing == 0);
  CHECK(learner.aborted() == 0);
  CHECK(learner.tasks() == 2);
  CHECK(learner.table().cells[kAllReduce][26].channels == 8);
  for (const TableEntry& entry : learner.entries()) {
    INFO(entry.key.task.text() << " " << entry.arm);
    if (entry.key.task.bin.log2 == 26)
      CHECK(entry.evidence.tuned_us < 0.75 * entry.evidence.default_us);
    else
      CHECK(entry.evidence.tuned_us < 1.1 * entry.evidence.default_us);
  }
}

namespace {

/// A learner whose job has steps as the test says; one size, settled.
struct SettledJob {
  Job job;
  std::optional<Micros> recent = Micros(200);
  Micros step{200};
  std::unique_ptr<OnlineLearner> learner;

  SettledJob() {
    LearnerOptions options;
    options.calls_per_trial = 5;
    options.space.channels = {"1", "8"};
    options.steps = [this](std::uint32_t) { return StepReading{50, step, 0.01}; };
    options.recent_step = [this](std::uint32_t) { return recent; };
    learner = std::make_unique<OnlineLearner>(job.region(), options);
    settle();
  }
  void settle() {
    for (int calls = 0; calls < 20'000 && !learner->finished(); ++calls) {
      job.call(26);
      REQUIRE(learner->step());
    }
    REQUIRE(learner->finished());
    REQUIRE(learner->step());
  }
  /// Until an alarm.
  void hear(double us, int calls) {
    for (int i = 0; i < calls && learner->alarms() == 0; ++i)
      learner->hear(kAllReduce, 26, learner->epoch(), Micros(us + 0.01 * us * (i % 5)));
  }
};

}  // namespace

TEST_CASE("calls that change re-open the search when the steps change", "[E-94][E-108]") {
  SettledJob job;
  job.hear(1000, 200);
  SECTION("not when the steps stay, and later steps are not laid at their door") {
    job.recent = Micros(204);
    job.hear(3000, 50);
    usleep(5'000);
    CHECK(job.learner->step());
    job.recent = Micros(300);
    CHECK(job.learner->step());
    CHECK(job.learner->alarms() == 0);
  }
  SECTION("at once when the steps have changed") {
    job.recent = Micros(300);
    job.hear(3000, 50);
    CHECK(job.learner->alarms() == 1);
  }
  SECTION("when the rhythm of steps is lost with it") {
    job.recent.reset();
    job.hear(3000, 50);
    CHECK(job.learner->alarms() == 1);
  }
}

TEST_CASE("a change to calls of many sizes is seen before one size has enough of them", "[E-94]") {
  constexpr std::size_t kSizes = 5;
  Job job;
  std::optional<Micros> recent = Micros(200);
  LearnerOptions options;
  options.calls_per_trial = 5;
  options.space.channels = {"1", "8"};
  options.steps = [](std::uint32_t) { return StepReading{50, Micros(200), 0.01}; };
  options.recent_step = [&](std::uint32_t) { return recent; };
  OnlineLearner learner(job.region(), options);
  for (int calls = 0; calls < 20'000 && !learner.finished(); ++calls) {
    for (std::size_t size = 0; size < kSizes; ++size) job.call(20 + size);
    REQUIRE(learner.step());
  }
  REQUIRE(learner.finished());
  REQUIRE(learner.step());
  // Sizes take very different times; in turn, until an alarm. @return calls in all
  const auto hear = [&](double pace, int most) {
    int calls = 0;
    for (; calls < most && learner.alarms() == 0; ++calls) {
      const double us = 50.0 * std::pow(4.0, calls % static_cast<int>(kSizes));
      learner.hear(kAllReduce, 20 + static_cast<std::size_t>(calls) % kSizes, learner.epoch(),
                   Micros(pace * us * (1 + 0.02 * ((calls * 7) % 5))));
    }
    return calls;
  };
  CHECK(hear(1, 2'000) == 2'000);
  recent = Micros(500);
  CHECK(hear(3, 400) <= 50);
  CHECK(learner.alarms() == 1);
}

namespace {

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
  std::unique_ptr<OnlineLearner> learner;

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
    learner = std::make_unique<OnlineLearner>(job.region(), options);
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

SpaceOptions some_channels() {
  SpaceOptions space;
  space.channels = {"1", "4", "8", "16", "32"};
  return space;
}

}  // namespace

TEST_CASE("after a change what is near the best setting is tried, from there on", "[E-108]") {
  ChangingJob job(some_channels());
  // So far that nobody asks for its steps again.
  job.reading = [&] {
    return StepReading{50, Micros(job.channels() == 0 ? 400'000 : 200'000), 0.01};
  };
  job.settle(20'000);
  REQUIRE(job.channels() == 8);
  job.change(3, 4);
  job.settle(20'000);
  CHECK(job.channels() == 4);
  // The library's own choice is no neighbour of 8 channels, and far worse.
  for (const CallTable& table : job.tables) CHECK_FALSE(table == CallTable{});
  const int tried = job.learner->rounds();
  INFO(tried << " settings");
  CHECK(tried < 15);

  SECTION("and when the change goes, what was there before comes back untried") {
    job.change(1, 8);
    job.settle(40);
    CHECK(job.channels() == 8);
    CHECK(job.learner->rounds() == 0);
  }
  SECTION("unless that is no longer as it was") {
    job.change(0.3, 16);
    job.settle(20'000);
    CHECK(job.learner->rounds() > 0);
    CHECK(job.channels() == 16);
  }
}

namespace {

/// The rows of the log that say what the job's steps decided.
std::vector<DecisionRecord> verdicts(const ChangingJob& job) {
  std::vector<DecisionRecord> found;
  for (const DecisionRecord& one : job.decisions)
    if (one.kind == "final") found.push_back(one);
  return found;
}

}  // namespace

TEST_CASE("settings that a job was started with do not stay where its own are faster",
          "[E-141][E-143]") {
  // By calls 8 channels are best; they take processors from what the job computes.
  CallTable planted{};
  planted.cells[kAllReduce][26].channels = 8;
  ChangingJob job(some_channels(), 0.1, 0, planted);
  double own_us = 200'000;
  job.reading = [&] {
    return StepReading{50, Micros(job.channels() == 0 ? own_us : 300'000), 0.01};
  };
  SECTION("slower steps than its own default's") {
    job.settle(20'000);
    CHECK(job.channels() == 0);
    CHECK(job.learner->rolled_back() == 1);
    REQUIRE(verdicts(job).size() == 1);
    const DecisionRecord verdict = verdicts(job).front();
    CHECK(verdict.guard == "slower-than-default");
    CHECK(verdict.arm == "NCCL's own settings");
    CHECK(verdict.task_key == "nccl/job/table/r2n1");
    CHECK(verdict.time_us == 200'000);
    CHECK(verdict.reference_us == 300'000);
    for (const TableEntry& entry : job.learner->entries()) {
      CHECK(entry.is_default());
      CHECK(entry.flags == std::vector<std::string>{"slower-than-default"});
    }
    // Its calls go on as the library wants them.
    CHECK(job.job.ranks[0]->decide(kAllReduce, 26).leaves_all());
  }
  SECTION("faster ones stay, and the log says against what") {
    own_us = 400'000;
    job.settle(20'000);
    CHECK(job.channels() == 8);
    CHECK(job.learner->rolled_back() == 0);
    REQUIRE(verdicts(job).size() == 1);
    CHECK(verdicts(job).front().guard == "pass");
    CHECK(verdicts(job).front().time_us == 300'000);
    CHECK(verdicts(job).front().reference_us == 400'000);
  }
  job.check_in_force();
}

TEST_CASE("settings whose calls take twice as long as Gloo's give way to the library's own",
          "[E-141][E-143]") {
  // 32 channels take 1.8 ms, NCCL's own as long as `own_channels` says.
  CallTable planted{};
  planted.cells[kAllReduce][26].channels = 32;
  SpaceOptions space;
  space.channels = {"1", "32"};
  constexpr double kPlantedUs = 1800;
  const auto asked = [](const ChangingJob& job) {
    return std::any_of(job.events.begin(), job.events.end(), [](const std::string& text) {
      return text.find("where Gloo took") != std::string::npos;
    });
  };
  const auto guarded = [](const ChangingJob& job) {
    return std::count_if(job.decisions.begin(), job.decisions.end(),
                         [](const auto& one) { return one.guard == "above-gloo-floor"; });
  };
  // Nothing but the floor looks for anything else.
  const auto check = [&](Micros gloo, double wanted, int channels, int asks) {
    ChangingJob job(space, 1e-9, 1, planted, gloo);
    job.job.wanted_channels = wanted;
    job.settle(20'000);
    for (int i = 0; i < 50; ++i) job.call();
    job.check_in_force();
    for (const DecisionRecord& one : job.decisions)
      UNSCOPED_INFO(one.kind << " " << one.arm << " " << one.guard << " "
                             << one.time_us.value_or(0));
    CHECK(job.channels() == channels);
    CHECK(job.learner->above_floor() == asks);
    CHECK(asked(job) == (asks > 0));
    REQUIRE(job.learner->entries().size() == 1);
    const std::vector<std::string> flags = job.learner->entries().front().flags;
    CHECK((std::find(flags.begin(), flags.end(), "above-gloo-floor") != flags.end()) == (asks > 0));
    CHECK((guarded(job) > 0) == asked(job));
  };
  SECTION("where these are faster") { check(Micros(kPlantedUs / 2.3), 2, 0, 1); }
  SECTION("not where these take longer still") {
    // 32 channels: 1.4 ms; NCCL's own: 2.2 ms.
    check(Micros(600), 16, 32, 1);
  }
  SECTION("not within the floor") { check(Micros(kPlantedUs / 1.7), 8, 32, 0); }
}

TEST_CASE("settings that have settled are held to Gloo's floor, too", "[E-141][E-143]") {
  ChangingJob job(some_channels(), 0.1, 0, {}, Micros(900));
  job.reading = [&] {
    return StepReading{50, Micros(job.channels() == 0 ? 400'000 : 200'000), 0.01};
  };
  job.settle(20'000);
  REQUIRE(job.channels() == 8);
  CHECK(job.learner->above_floor() == 0);
  for (const TableEntry& entry : job.learner->entries())
    CHECK(entry.flags == std::vector<std::string>{"slower_than_gloo"});
  // Another half as long again would change nothing; beyond twice Gloo's time NCCL's own are asked,
  // although no trigger sees the change.
  job.job.wanted_channels = 2;
  job.job.pace = 1.2;
  const auto own = [&] { return job.channels() == 0; };
  for (int i = 0; i < 200 && !own(); ++i) job.call();
  CHECK(own());
  CHECK(job.learner->above_floor() + job.learner->alarms() > 0);
  CHECK(job.learner->above_floor() == 1);
}

TEST_CASE("steps of seconds, and steps that nobody saw before the search, decide on a table, too",
          "[E-141][E-143]") {
  // By calls 8 channels are best, by the step the library's own.
  CallTable planted{};
  std::size_t shortest_us = 0;  // of steps that are heard before the search
  SECTION("a table of before, its steps unknown") { planted.cells[kAllReduce][26].channels = 4; }
  SECTION("a table of before, in steps of 20 seconds") {
    planted.cells[kAllReduce][26].channels = 4;
    shortest_us = 20'000'000;
  }
  SECTION("none, the first steps unknown") {}
  ChangingJob job(some_channels(), 0, 0, planted);
  // A step of it has been heard by then, under whichever table.
  if (shortest_us > 0) job.latest = Micros(static_cast<double>(shortest_us));
  std::optional<std::uint32_t> epoch;
  std::int64_t since_ns = job.ns;
  bool searched = false;
  job.reading = [&]() -> std::optional<StepReading> {
    if (job.learner->epoch() != epoch) {
      searched = epoch.has_value();
      epoch = job.learner->epoch();
      since_ns = job.ns;
    }
    // A rhythm is found late: under the first table nobody has heard a step when the search begins.
    if (shortest_us == 0 && !searched) return std::nullopt;
    const double step_us =
        (job.channels() == 0 ? 2 : 3) * std::max(1e6, static_cast<double>(shortest_us) / 2);
    const double steps = static_cast<double>(job.ns - since_ns) / 1e3 / step_us;
    if (steps < 1) return std::nullopt;
    job.latest = Micros(step_us);
    return StepReading{static_cast<std::size_t>(steps), Micros(step_us), 0.01};
  };
  job.job.pace = 100;  // a call takes a tenth of a second
  job.settle(40'000);
  CHECK(job.channels() == 0);
  CHECK(job.learner->rolled_back() >= 1);
  REQUIRE_FALSE(verdicts(job).empty());
  CHECK(verdicts(job).back().guard == "slower-than-default");
  job.check_in_force();
}

TEST_CASE("what is learnt after a change is held against the library's own settings, too",
          "[E-141][E-143]") {
  ChangingJob job(some_channels());
  double own_us = 260'000;
  job.reading = [&] {
    return StepReading{50, Micros(job.channels() == 0 ? own_us : 200'000), 0.01};
  };
  job.settle(20'000);
  REQUIRE(job.channels() == 8);
  REQUIRE(verdicts(job).size() == 1);
  CHECK(verdicts(job).front().guard == "pass");
  own_us = 150'000;
  job.change(3, 4);
  job.settle(20'000);
  CHECK(job.channels() == 0);
  CHECK(job.learner->rolled_back() == 1);
  CHECK(verdicts(job).back().guard == "slower-than-default");
  job.check_in_force();
}

TEST_CASE("what the trigger saw is in the choices that follow", "[E-57][E-58][E-59]") {
  ChangingJob job(some_channels());
  job.settle(20'000);
  for (const DecisionRecord& quiet : job.decisions)
    if (quiet.kind != "final") CHECK(quiet.state.at("congestion") == nlohmann::json{0});
  job.change(3, 4);
  job.decisions.clear();
  job.settle(20'000);
  REQUIRE(!job.decisions.empty());
  const DecisionRecord& first = job.decisions.front();
  CHECK(first.state.at("cusum_score")[0] >= 1);
  CHECK(first.state.at("congestion")[0] >= 1);
  CHECK(first.state.at("reconstruction_error")[0] > 1);
  CHECK(first.state.at("interference")[0] > 0.4);  // calls take three times as long
}

TEST_CASE("no more settings of a size are tried than were asked for", "[E-108]") {
  ChangingJob job(some_channels(), 0, 2);
  job.settle(20'000);
  CHECK(job.learner->rounds() == 2);
  // Nor among the neighbours after a change.
  job.change(3, 4);
  job.settle(20'000);
  CHECK(job.learner->rounds() == 2);
}

TEST_CASE("beside an agent that wants nothing tried, nothing is", "[E-108]") {
  Job job;
  LearnerOptions options;
  options.agent = "default";
  OnlineLearner learner(job.region(), options);
  for (int calls = 0; calls < 2'000 && !learner.finished(); ++calls) {
    job.call(26);
    REQUIRE(learner.step());
  }
  CHECK(learner.finished());
  CHECK(learner.rounds() == 0);
  CHECK(learner.epoch() == 0);
}

TEST_CASE("sizes that are not called, or come, while an earlier table is back", "[E-108]") {
  ChangingJob job(some_channels());
  job.also = {22};
  job.settle(20'000);
  job.change(3, 4);
  job.settle(20'000);
  job.change(1, 8);
  SECTION("one that is silent has what it took then") {
    job.also = {};
    job.settle(20'000);
    CHECK(job.learner->rounds() == 0);
    REQUIRE(job.learner->entries().size() == 2);
    for (const TableEntry& entry : job.learner->entries()) {
      INFO(entry.key.task.text());
      CHECK(entry.evidence.tuned_us > 900);
      CHECK(entry.evidence.tuned_us < 1100);
    }
  }
  SECTION("a new one is searched") {
    job.also = {24};
    job.settle(20'000);
    CHECK(job.learner->entries().size() == 3);
    CHECK(job.learner->rounds() > 0);
  }
  job.check_in_force();
}

TEST_CASE("a new size while the old table is asked again", "[E-108]") {
  ChangingJob job(some_channels());
  StepReading chosen{4, Micros(200'000), 0.01};
  StepReading old = chosen;
  job.reading = [&] { return job.channels() == 8 ? chosen : old; };
  // Too few steps for the new table to be judged.
  for (int still = 0, rounds = 0; still < 300; ++still) {
    job.call();
    if (std::exchange(rounds, job.learner->rounds()) != job.learner->rounds()) still = 0;
  }
  REQUIRE(job.channels() == 8);
  chosen = {50, Micros(300'000), 0.01};
  for (int calls = 0; calls < 100 && job.channels() == 8; ++calls) job.call();
  REQUIRE(job.channels() == 0);
  job.also = {22};
  SECTION("the new table comes back with it") {
    chosen.step = Micros(200'000);
    for (int calls = 0; calls < 100; ++calls) job.call();
    job.settle(20'000);
    CHECK(job.channels() == 8);
    CHECK(job.learner->rolled_back() == 0);
  }
  SECTION("and is held against the old one when that has settled") {
    for (int calls = 0; calls < 100; ++calls) job.call();
    old.steps = 50;
    job.settle(20'000);
    CHECK(job.channels() == 0);
    CHECK(job.learner->rolled_back() == 1);
  }
  CHECK(job.learner->tasks() == 2);
  job.check_in_force();
}

TEST_CASE("a leader learns after one that left no known table, whose first proposal fails",
          "[E-116]") {
  Job job;
  for (int calls = 0; calls < 10; ++calls) job.call(26);
  {
    Leader earlier(job.region());
    REQUIRE(earlier.poll() == TableLeader::Progress::free);
    CallTable table{};
    table.cells[kAllReduce][26].channels = 4;
    earlier.propose(table, 5);
    for (int calls = 0; calls < 10; ++calls) job.call(26);
    REQUIRE(earlier.poll() == TableLeader::Progress::free);
    REQUIRE(earlier.committed());
    earlier.propose(CallTable{}, 5);
  }
  LearnerOptions options;
  options.space.channels = {"1", "8"};
  OnlineLearner learner(job.region(), options);
  CHECK(learner.step());
  // A rank far ahead of the other one passes the boundary by itself.
  for (int calls = 0; calls < 20; ++calls) job.ranks[0]->decide(kAllReduce, 26);
  CHECK(learner.step());
  CHECK(learner.aborted() == 1);
  for (int calls = 0; calls < 20; ++calls) job.ranks[1]->decide(kAllReduce, 26);
  for (int calls = 0; calls < 200; ++calls) {
    job.call(26);
    REQUIRE(learner.step());
  }
  CHECK(learner.epoch() > 0);
  CHECK(learner.tasks() == 1);
  CHECK(learner.rounds() > 0);
}

TEST_CASE("after one that left no known table, the job's own table comes back first", "[E-116]") {
  Job job;
  for (int calls = 0; calls < 10; ++calls) job.call(26);
  {
    Leader earlier(job.region());
    CallTable table{};
    table.cells[kAllReduce][26].channels = 4;
    earlier.propose(table, 5);
    for (int calls = 0; calls < 10; ++calls) job.call(26);
    REQUIRE(earlier.poll() == TableLeader::Progress::free);
    earlier.propose(CallTable{}, 5);
    // A rank far ahead of the other one passes the boundary by itself.
    for (int calls = 0; calls < 20; ++calls) job.ranks[0]->decide(kAllReduce, 26);
    REQUIRE(earlier.poll() == TableLeader::Progress::free);
    REQUIRE_FALSE(earlier.committed());
    for (int calls = 0; calls < 20; ++calls) job.ranks[1]->decide(kAllReduce, 26);
  }
  LearnerOptions options;
  options.agent = "default";
  options.start.cells[kAllReduce][26].channels = 8;
  options.start.cells[kAllReduce][10].channels = 1;  // not called yet
  options.space.channels = {"1", "8"};
  OnlineLearner learner(job.region(), options);
  for (int calls = 0; calls < 200 && !learner.finished(); ++calls) {
    job.call(26);
    REQUIRE(learner.step());
  }
  CHECK(learner.finished());
  CHECK(learner.table().cells[kAllReduce][26].channels == 8);
  CHECK(learner.table().cells[kAllReduce][10].channels == 1);
  CHECK(job.ranks[0]->decide(kAllReduce, 26).channels == 8);
}

TEST_CASE("dynamiccl-leader refuses numbers that bound nothing", "[E-116]") {
  const Job job;
  for (const char* words : {"--learn-cost nan", "--learn-cost inf", "--seconds nan",
                            "--seconds inf", "--seconds -1", "--learn-cost 2x"}) {
    INFO(words);
    // Taken, it would lead ranks that make no call.
    const std::string leader = "timeout 10 " DYNAMICCL_LEADER " " + job.folder + " " + words;
    const int code = std::system((leader + " 2>/dev/null").c_str());
    CHECK(WEXITSTATUS(code) == 2);
  }
}

TEST_CASE("dynamiccl-leader ends when its folder is removed before any rank came", "[E-116]") {
  const Job job;
  const std::string folder = job.folder + "/ranks";
  const std::string said = job.folder + "/said";
  fs::create_directories(folder);
  // Removed only when the leader has seen it; a leader that waits on is ended, with 124.
  const std::string leader = "timeout 120 " DYNAMICCL_LEADER " " + folder + " 2>" + said +
                             " & until grep -q 'looking for ranks' " + said +
                             "; do sleep 0.1; done; rm -r " + folder + "; wait $!";
  const int status = std::system(leader.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  std::stringstream text;
  text << std::ifstream(said).rdbuf();
  INFO(text.str());
  CHECK(text.str().find("was removed before any rank was heard") != std::string::npos);
}

TEST_CASE("trying settings costs no more than its part of the job's time", "[E-108]") {
  const auto lost = [](double learn_cost) {
    // Everything but the library's own choice is bad.
    ChangingJob job({}, learn_cost);
    job.job.wanted_channels = 2;
    job.settle(20'000);
    return job.learner->lost().count();
  };
  // Of 100 steps of 200 ms.
  const double bounded = lost(0.0005);
  const double free = lost(0);
  INFO(bounded << " and " << free << " us");
  CHECK(bounded > 0);
  // And the setting that is being tried when it is used up.
  CHECK(bounded < 0.0005 * 100 * 200'000 + 60'000);
  CHECK(free > 1.5 * bounded);
}

TEST_CASE("searches anew have no part of the job's time of their own", "[E-108]") {
  ChangingJob job({}, 0.001);
  job.job.wanted_channels = 2;
  job.settle(20'000);
  // 100 steps of 200 ms are not over yet: what was lost counts for their 20 s, and is used up.
  const double allowed_us = 0.001 * 100 * 200'000;
  INFO(job.learner->lost().count());
  REQUIRE(job.learner->lost().count() >= allowed_us);
  job.ns += 14'000'000'000;
  REQUIRE(job.ns < 20'000'000'000);
  job.learner->reopen();
  REQUIRE_FALSE(job.learner->finished());
  job.settle(20'000);
  CHECK(job.learner->rounds() == 0);
}

TEST_CASE("a search that steps re-open comes to its end", "[E-108]") {
  SettledJob job;
  job.step = Micros(1e6);
  job.hear(1000, 200);
  job.hear(3000, 50);
  CHECK(job.learner->alarms() == 0);
  // The steps show the change only later, while calls of the round have come.
  for (int i = 0; i < 20; ++i) job.job.call(26);
  job.recent = Micros(300);
  REQUIRE(job.learner->step());
  CHECK(job.learner->alarms() == 1);
  CHECK_FALSE(job.learner->finished());
  job.settle();
}

TEST_CASE("a leader leaves with its job", "[E-116]") {
  Job job;
  OnlineLearner learner(job.region(), {});
  CHECK(learner.step());
  for (auto& rank : job.ranks) rank.reset();
  CHECK_FALSE(learner.step());
}

TEST_CASE("what a lost learner had learnt stands until another has measured", "[E-116]") {
  std::map<RegimeKey, TableEntry> rows;
  const auto put = [&](const char* regime, const char* arm, double tuned_us) {
    TableEntry row;
    row.key.regime = regime;
    row.arm = arm;
    row.evidence.tuned_us = tuned_us;
    put_row(rows, row);
  };
  put("a", "default", 0);
  CHECK(rows.begin()->second.arm == "default");
  put("a", "ring", 90);
  put("a", "default", 0);
  put("b", "default", 0);
  REQUIRE(rows.size() == 2);
  CHECK(rows.begin()->second.arm == "ring");
  put("a", "tree", 80);
  CHECK(rows.size() == 2);
  CHECK(rows.begin()->second.arm == "tree");
}
