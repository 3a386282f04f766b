#include "tuner/online/call_driver.hpp"

#include <sys/stat.h>
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

#include "plugin/agreement/member.hpp"
#include "tests/tuner/online/online_job.hpp"
#include "tuner/export/export.hpp"
#include "tuner/online/job_leader.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
namespace fs = std::filesystem;

TEST_CASE("a leader learns each size's setting while the job runs", "[E-116][E-120]") {
  Job job;
  LearnerOptions options;
  options.calls_per_trial = 5;
  options.space.channels = {"1", "4", "8", "16"};
  CallDriver learner(job.region(), options);
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

TEST_CASE("where switches sum, a thousand calls change no setting, and the log says why",
          "[E-144]") {
  Job job;
  LearnerOptions options;
  options.calls_per_trial = 5;
  options.space.channels = {"1", "4", "8", "16"};
  SECTION("as declared") { options.context.ina_active = true; }
  SECTION("as detected") { options.state.ina_active = true; }
  CallDriver learner(job.region(), options);
  for (int calls = 0; calls < 1000; ++calls) {
    job.call(26);
    REQUIRE(learner.step());
  }
  CHECK(learner.epoch() == 0);
  CHECK(learner.rounds() == 0);
  CHECK(learner.aborted() == 0);
  CHECK(learner.table().cells[kAllReduce][26].channels == 0);
  for (const TableEntry& entry : learner.entries()) CHECK(entry.is_default());
}

namespace {

/// A learner whose job has steps as the test says; one size, settled.
struct SettledJob {
  Job job;
  std::optional<Micros> recent = Micros(200);
  Micros step{200};
  std::unique_ptr<CallDriver> learner;

  SettledJob() {
    LearnerOptions options;
    options.calls_per_trial = 5;
    options.space.channels = {"1", "8"};
    options.steps = [this](std::uint32_t) { return StepReading{50, step, 0.01}; };
    options.recent_step = [this](std::uint32_t) { return recent; };
    learner = std::make_unique<CallDriver>(job.region(), options);
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
  CallDriver learner(job.region(), options);
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

TEST_CASE("after a change the agent searches on from the best setting", "[E-108]") {
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
  // The library's own choice is far worse: the agent may look, once.
  CHECK(std::count(job.tables.begin(), job.tables.end(), CallTable{}) <= 1);
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
  CallDriver learner(job.region(), options);
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
    REQUIRE(earlier.poll() == Leader::Progress::free);
    CallTable table{};
    table.cells[kAllReduce][26].channels = 4;
    earlier.propose(table, 5);
    for (int calls = 0; calls < 10; ++calls) job.call(26);
    REQUIRE(earlier.poll() == Leader::Progress::free);
    REQUIRE(earlier.committed());
    earlier.propose(CallTable{}, 5);
  }
  LearnerOptions options;
  options.space.channels = {"1", "8"};
  CallDriver learner(job.region(), options);
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
    REQUIRE(earlier.poll() == Leader::Progress::free);
    earlier.propose(CallTable{}, 5);
    // A rank far ahead of the other one passes the boundary by itself.
    for (int calls = 0; calls < 20; ++calls) job.ranks[0]->decide(kAllReduce, 26);
    REQUIRE(earlier.poll() == Leader::Progress::free);
    REQUIRE_FALSE(earlier.committed());
    for (int calls = 0; calls < 20; ++calls) job.ranks[1]->decide(kAllReduce, 26);
  }
  LearnerOptions options;
  options.agent = "default";
  options.start.cells[kAllReduce][26].channels = 8;
  options.start.cells[kAllReduce][10].channels = 1;  // not called yet
  options.space.channels = {"1", "8"};
  CallDriver learner(job.region(), options);
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

TEST_CASE("dynamiccl-leader refuses a policy that nobody would read", "[E-116]") {
  const Job job;
  // Without --agent means choose, which read none.
  for (const char* agent : {"", "--agent bandit "}) {
    INFO(agent);
    const std::string said = job.folder + "/said";
    const std::string leader = "timeout 10 " DYNAMICCL_LEADER " " + job.folder + " " + agent +
                               "--policy /nowhere/any.policy 2>" + said;
    const int status = std::system(leader.c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 2);
    std::stringstream text;
    text << std::ifstream(said).rdbuf();
    INFO(text.str());
    CHECK(text.str().find("--policy does nothing here: ppo reads a policy, and " +
                          std::string(*agent == '\0' ? "means" : "bandit") + " chooses") !=
          std::string::npos);
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

namespace {

/// The leader program's exit code for a folder without ranks, with its own stderr, and what it
/// said.
struct Led {
  int code = 0;
  std::string said;
};
Led lead(const std::string& folder, const std::string& words, const std::string& redirected = "") {
  const std::string said = folder + ".said";
  const std::string command = "timeout -k 5 60 " DYNAMICCL_LEADER " " + folder +
                              " --agent default --seconds 0.1 " + words + " 2>" + said + " " +
                              redirected;
  const int status = std::system(command.c_str());
  std::stringstream text;
  text << std::ifstream(said).rdbuf();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text.str()};
}

}  // namespace

TEST_CASE("dynamiccl-leader leads on whatever becomes of what it says", "[safety]") {
  const Job job;
  const std::string folder = job.folder + "/ranks";
  fs::create_directories(folder);
  for (const char* stream : {"2>/dev/full", "2>&-", "2>&- 1>&-", "<&- 2>&-"}) {
    INFO(stream);
    CHECK(lead(folder, "--out " + job.folder + "/table.json", stream).code == 0);
    CHECK(fs::exists(job.folder + "/table.json"));
    fs::remove(job.folder + "/table.json");
  }
}

TEST_CASE("dynamiccl-leader waits for no pipe and follows no link in its folder", "[safety]") {
  const Job job;
  const std::string folder = job.folder + "/ranks";
  const std::string decisions = folder + "/decisions.jsonl";
  fs::create_directories(folder);
  REQUIRE(mkfifo(decisions.c_str(), 0600) == 0);
  const Led piped = lead(folder, "");
  INFO(piped.said);
  CHECK(piped.code == 2);
  CHECK(piped.said.find("is no regular file") != std::string::npos);
  fs::remove(decisions);
  const std::string victim = job.folder + "/victim";
  fs::create_symlink(victim, decisions);
  const Led linked = lead(folder, "");
  INFO(linked.said);
  CHECK(linked.code == 2);
  CHECK(linked.said.find("it is a link") != std::string::npos);
  CHECK_FALSE(fs::exists(victim));
}

TEST_CASE("dynamiccl-leader refuses a place for its table before it learns", "[safety]") {
  const Job job;
  const std::string folder = job.folder + "/ranks";
  fs::create_directories(folder);
  const Led nowhere = lead(folder, "--out " + job.folder + "/none/table.json");
  INFO(nowhere.said);
  CHECK(nowhere.code == 2);
  CHECK(nowhere.said.find("its folder is not there") != std::string::npos);
  CHECK(lead(folder, "--out " + folder).code == 2);
}

TEST_CASE("names in a leader's folder steer no terminal", "[safety]") {
  const Job job;
  const std::string folder = job.folder + "/ranks\x1b[2J";
  fs::create_directories(folder);
  REQUIRE(mkfifo((folder + "/decisions.jsonl").c_str(), 0600) == 0);
  const Led led = lead(folder, "");
  INFO(led.said);
  CHECK(led.said.find("ranks\\x1b[2J/decisions.jsonl") != std::string::npos);
  CHECK(led.said.find('\x1b') == std::string::npos);
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
  CallDriver learner(job.region(), {});
  CHECK(learner.step());
  for (auto& rank : job.ranks) rank.reset();
  CHECK_FALSE(learner.step());
}

TEST_CASE("a job over several hosts is told that its calls' settings stay NCCL's own", "[E-117]") {
  std::string folder = fs::temp_directory_path() / "job-leader-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  std::string problem;
  const auto member = [&](std::uint64_t communicator, unsigned ranks) {
    return Member(Region::open_or_make(folder, {communicator, ranks}, problem));
  };
  JobLeader leader(folder, {});
  Member whole = member(1, 1);
  Member first = member(2, 3);
  Member second = member(2, 3);
  whole.decide(kAllReduce, 20);
  // Who has not called yet may wait for the others.
  CHECK(leader.beyond_this_host().empty());
  first.decide(kAllReduce, 20);
  CHECK(leader.beyond_this_host().find("2 of the 3 ranks of communicator 0000000000000002") == 0);
  Member third = member(2, 3);
  CHECK(leader.beyond_this_host().empty());
  fs::remove_all(folder);
}

TEST_CASE("what one learner has learnt stands until another has measured", "[E-116]") {
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
