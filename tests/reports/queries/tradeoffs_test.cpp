#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <map>
#include <set>

#include "db/decision_log.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Two groups on bare metal that differ in backend or architecture; four launches of each.
class TwoGroups {
 public:
  using TimeOfGroup = std::function<double(std::size_t group, std::uint64_t size, int block)>;

  explicit TwoGroups(const std::vector<std::uint64_t>& sizes)
      : store(folder.file("a.sqlite")),
        plan(make_plan("run-1", {"bare-metal", "second"}, {"allreduce"}, sizes)) {
    plan.groups[1].environment = "bare-metal";
  }

  /// @param start_up_s from a group's first process until its last rank is connected
  /// @param ran what the library says that it ran
  void launch(const TimeOfGroup& time, double first_start_up_s = 1, double second_start_up_s = 1,
              const std::string& ran = "ring") {
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 4; ++block)
      for (std::size_t g = 0; g < 2; ++g) {
        const auto start = make_start(plan.groups[g].id, block);
        const auto row = store.begin_launch("run-1", start);
        auto files = make_records(
            plan.cells, plan.groups[g].id, start.uuid, plan.groups[g].ranks, 20,
            [&](const CellInfo& cell, int, int) { return time(g, cell.size_bytes, block); });
        for (auto& file : files)
          for (auto& record : file.records)
            if (auto* cell = std::get_if<CellRecord>(&record)) {
              cell->algorithm = ran;
            } else if (auto* hello = std::get_if<HelloRecord>(&record)) {
              hello->started_unix_s = 1000;
              hello->ready_unix_s = 1000 + (g == 0 ? first_start_up_s : second_start_up_s);
            }
        store.finish_launch(row, make_end(), files);
      }
    store.end_run("run-1", "complete");
  }

  [[nodiscard]] Table query(const char* name, const char* vary = "environment") const {
    QueryScope scope;
    scope.vary = vary;
    return named_query(Reader(folder.file("a.sqlite")), name, scope);
  }

  ScratchFolder folder;
  Store store;
  SyntheticPlan plan;
};

}  // namespace

TEST_CASE("NCCL below Gloo's floor is told only where it is sure", "[G-16][E-142]") {
  TwoGroups run({1024, 4096, 16384, kMiB});
  run.plan.groups[0].backend = "nccl";
  run.plan.groups[1].backend = "gloo";
  // NCCL over Gloo: 0.5, 1.5, 2.5, and anything at all.
  const std::map<std::uint64_t, double> ratio{{1024, 0.5}, {4096, 1.5}, {16384, 2.5}};
  run.launch([&](std::size_t group, std::uint64_t size, int block) {
    const double steady = 10.0 + 0.01 * block;
    if (group == 1) return steady;
    return size == kMiB ? (block % 2 == 0 ? 5.0 : 40.0) : steady * ratio.at(size);
  });
  const Table table = run.query("floor");
  const TableView rows(table);
  REQUIRE(rows.size() == 4);
  CHECK(rows.text(0, "backend") == "nccl");
  CHECK(rows.text(0, "floor") == "held");
  CHECK(rows.text(1, "floor") == "VIOLATED");
  CHECK(rows.text(2, "floor") == "VIOLATED beyond 2 x");
  CHECK(rows.text(3, "floor") == "UNCLEAR");
  CHECK(rows.text(3, "verdict") == "UNCLEAR");
}

TEST_CASE("NCCL is compared with what a host library makes of data on the GPU", "[G-08][G-16]") {
  TwoGroups run({1024});
  run.plan.groups[0].backend = "nccl";
  run.plan.groups[1].backend = "gloo";
  run.plan.cells[1].knobs_json = R"({"memory":"device"})";
  run.launch([](std::size_t group, std::uint64_t, int block) {
    return (group == 0 ? 10.0 : 30.0) + 0.01 * block;
  });
  const Table floor = run.query("floor");
  REQUIRE(floor.rows.size() == 1);
  CHECK(TableView(floor).text(0, "floor") == "held");
  const Table axis = run.query("axis", "backend");
  REQUIRE(axis.rows.size() == 1);
  CHECK(TableView(axis).text(0, "winner") == "nccl");
  CHECK(TableView(axis).text(0, "cell_knobs") == R"({"memory":"device"})");
}

TEST_CASE("trade-offs of backends have a winner per aspect, and none where it is not sure",
          "[G-08]") {
  TwoGroups run({1024, kMiB});
  run.plan.groups[0].backend = "nccl";
  run.plan.groups[1].backend = "gloo";
  run.launch(
      [](std::size_t group, std::uint64_t size, int block) {
        if (size == kMiB) return group == 0 ? 10.0 + block : 10.5 + (block * 3) % 4;
        return (group == 0 ? 10.0 : 20.0) + 0.01 * block;
      },
      5, 0.5);
  const Table table = run.query("tradeoffs", "backend");
  const TableView rows(table);
  std::map<std::string, std::pair<std::string, std::string>> winner;
  for (std::size_t i = 0; i < rows.size(); ++i)
    winner[rows.text(i, "collective") + rows.text(i, "size_bytes") + " " + rows.text(i, "aspect")] =
        {rows.text(i, "winner"), rows.text(i, "winner_is_sure")};
  CHECK(winner.at("allreduce1024 time") == std::pair<std::string, std::string>("nccl", "yes"));
  CHECK(winner.at("allreduce1024 95th percentile") ==
        std::pair<std::string, std::string>("nccl", "yes"));
  CHECK(winner.at("allreduce1048576 time").second == "no");
  // The faster library takes longer to connect: that is the trade-off.
  CHECK(winner.at("0 start-up") == std::pair<std::string, std::string>("gloo", "yes"));
  CHECK_THROWS_WITH(run.query("tradeoffs", "size_bytes"), ContainsSubstring("that is no choice"));
}

TEST_CASE("trade-offs of environments have a column each, and a winner that is sure", "[G-10]") {
  TwoGroups run({1024});
  run.plan.groups[1].environment = "cross-docker";
  run.launch([](std::size_t group, std::uint64_t, int block) {
    return (group == 0 ? 10.0 : 20.0) + 0.01 * block;
  });
  const Table table = run.query("tradeoffs", "environment");
  const TableView rows(table);
  std::set<std::string> sure;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows.text(i, "collective") != "allreduce") continue;
    CHECK(rows.real(i, "bare-metal_us") < rows.real(i, "cross-docker_us"));
    CHECK(rows.text(i, "winner") == "bare-metal");
    if (rows.text(i, "winner_is_sure") == "yes") sure.insert(rows.text(i, "aspect"));
  }
  CHECK(sure == std::set<std::string>{"time", "95th percentile"});
}

TEST_CASE("architectures are compared at equal numbers of workers", "[G-09]") {
  TwoGroups run({kMiB});
  run.plan.groups[1].architecture = "ps";
  run.plan.groups[1].ranks = 3;  // a server and two workers
  run.plan.cells[1].collective = "push_pull";
  run.launch([](std::size_t group, std::uint64_t, int block) {
    return (group == 0 ? 10.0 : 30.0) + 0.01 * block;
  });
  const Table table = run.query("tradeoffs", "architecture");
  const TableView rows(table);
  bool seen = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows.text(i, "aspect") != "time") continue;
    seen = true;
    CHECK(rows.text(i, "collective") == "exchange");
    CHECK(rows.integer(i, "workers") == 2);
    CHECK(rows.text(i, "winner") == "ring");
    CHECK(rows.text(i, "winner_is_sure") == "yes");
  }
  CHECK(seen);
}

TEST_CASE("findings count what is sure and say where it depends", "[G-12]") {
  TwoGroups run({1024, 2048, 4096, kMiB, 16 * kMiB});
  run.plan.groups[0].backend = "nccl";
  run.plan.groups[1].backend = "gloo";
  run.launch([](std::size_t group, std::uint64_t size, int block) {
    const double noise = 0.01 * block;
    if (size == 16 * kMiB) return 10.0 + (block * (group == 0 ? 3 : 5)) % 4;
    const bool first_wins = size != 1024 && size != kMiB;
    return ((group == 0) == first_wins ? 10.0 : 20.0) + noise;
  });
  const Table table = run.query("findings");
  const TableView rows(table);
  std::map<std::string, std::string> finding;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows.text(i, "factor") == "backend")
      finding[rows.text(i, "sizes")] = rows.text(i, "finding");
  CHECK(finding.at("small (< 64 KiB)") == "depends: nccl (2), gloo (1)");
  CHECK(finding.at("medium (64 KiB to < 4 MiB)") == "gloo wins where it is sure");
  CHECK(finding.at("large (>= 4 MiB)") == "nothing sure");
}

TEST_CASE("architectures are a factor of the findings, at equal numbers of workers", "[G-12]") {
  TwoGroups run({1024, kMiB});
  run.plan.groups[1].architecture = "ps";
  run.plan.groups[1].ranks = 3;
  for (auto& cell : run.plan.cells)
    if (cell.group_id == run.plan.groups[1].id) cell.collective = "push_pull";
  run.launch([](std::size_t group, std::uint64_t size, int block) {
    return (group == 0) == (size == kMiB) ? 10.0 + 0.01 * block : 30.0 + 0.01 * block;
  });
  const Table table = run.query("findings");
  const TableView rows(table);
  std::map<std::string, std::string> finding;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows.text(i, "factor") == "architecture")
      finding[rows.text(i, "collective") + " " + rows.text(i, "sizes")] = rows.text(i, "finding");
  CHECK(finding == std::map<std::string, std::string>{
                       {"exchange small (< 64 KiB)", "ps wins where it is sure"},
                       {"exchange medium (64 KiB to < 4 MiB)", "ring wins where it is sure"}});
}

TEST_CASE("flags of tuned tasks and of algorithms that did not run are listed", "[G-17]") {
  TwoGroups run({1024});
  run.plan.cells[0].algorithm = "tree";
  run.launch([](std::size_t, std::uint64_t, int) { return 10.0; });
  DecisionLog log(run.folder.file("a.sqlite"));
  const auto tuning = log.begin({"run-1", "live", "bandit", "", 1, "{}"});
  const auto decision = [](const char* kind, const char* arm, const char* guard) {
    DecisionInfo row;
    row.task_key = "task";
    row.environment = "bare-metal";
    row.regime = "abcd";
    row.kind = kind;
    row.arm = arm;
    row.guard = guard;
    row.state_json = row.candidates_json = row.asked_json = "{}";
    return row;
  };
  log.add(
      tuning,
      {decision("reference", "library", "pass"), decision("explore", "ring", "slower-than-default"),
       decision("explore", "tree", "ina-passthrough"), decision("final", "library", "pass")});
  const auto said = [&](const char* task, const char* candidates) {
    DecisionInfo row = decision("final", "library", "not-confirmed");
    row.task_key = task;
    row.candidates_json = candidates;
    return row;
  };
  log.add(tuning, {said("known", R"({"tried":9,"flags":["non_actionable_regime"]})"),
                   said("open", R"({"tried":1,"flags":["unexplored","slower_than_gloo"]})")});
  const Table table = run.query("flags");
  const TableView rows(table);
  std::map<std::string, std::string> rule;
  for (std::size_t i = 0; i < rows.size(); ++i) rule[rows.text(i, "flag")] = rows.text(i, "rule");
  CHECK(rule.size() == 8);
  CHECK_THAT(rule.at("undecided"), ContainsSubstring("does not say"));
  CHECK_THAT(rule.at("non_actionable_regime"), ContainsSubstring("every setting was measured"));
  CHECK(rule.contains("unexplored"));
  CHECK(rule.contains("slower_than_gloo"));
  // Of searches by launches and of training cells that learn within one.
  CHECK_THAT(rule.at("not-confirmed"), ContainsSubstring("when both were measured anew"));
  CHECK(rule.contains("passthrough"));
  // One launch shows less than a comparison.
  CHECK_THAT(rule.at("slower-in-trial"), ContainsSubstring("final rows say"));
  CHECK_FALSE(rule.contains("slower-than-default"));
  CHECK(rule.at("library_fallback") == "asked for tree, ran ring");
}

TEST_CASE("what ran is held against what was asked, not its channels and threads", "[G-17]") {
  const auto flagged = [](const std::string& asked, const std::string& ran) {
    TwoGroups run({1024});
    run.plan.cells[0].algorithm = asked;
    run.launch([](std::size_t, std::uint64_t, int) { return 10.0; }, 1, 1, ran);
    const Table table = run.query("flags");
    const TableView rows(table);
    std::set<std::string> rules;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows.text(i, "flag") == "library_fallback") rules.insert(rows.text(i, "rule"));
    return rules;
  };
  // As the worker writes down what NCCL says.
  CHECK(flagged("ring/ll", "RING/LL, 1 channels, 96 threads").empty());
  CHECK(flagged("ring", "RING/LL, 1 channels, 96 threads").empty());
  CHECK(flagged("tree", "TREE").empty());
  CHECK(flagged("ring/ll", "RING/LL128, 2 channels, 640 threads") ==
        std::set<std::string>{"asked for ring/ll, ran RING/LL128"});
  CHECK(flagged("tree/ll", "RING/LL, 1 channels, 96 threads") ==
        std::set<std::string>{"asked for tree/ll, ran RING/LL"});
}

TEST_CASE("of a table that is judged nothing is said to be taken back", "[G-17]") {
  TwoGroups run({1024});
  run.launch([](std::size_t, std::uint64_t, int) { return 10.0; });
  DecisionLog log(run.folder.file("a.sqlite"));
  DecisionInfo row;
  row.task_key = "task";
  row.environment = "bare-metal";
  row.regime = "abcd";
  row.kind = "final";
  row.arm = "ring";
  row.guard = "slower-than-default";
  row.time_us = 20;
  row.reference_us = 16;
  row.state_json = row.asked_json = "{}";
  row.candidates_json = R"({"tried":0,"flags":[]})";
  for (const char* agent : {"table", "bandit"})
    log.add(log.begin({"run-1", "live", agent, "", 0, "{}"}), {row});
  const Table flags = run.query("flags");
  std::set<std::string> rules;
  for (std::size_t i = 0; i < flags.rows.size(); ++i)
    rules.insert(TableView(flags).text(i, "rule"));
  CHECK(rules == std::set<std::string>{
                     "slower than the default beyond noise; not kept",
                     "slower than the default beyond noise; the table that was judged keeps it"});
  // What a search took back is not in force; the table's setting is.
  const Table trace = run.query("trace");
  REQUIRE(trace.rows.size() == 2);
  CHECK(TableView(trace).real(0, "improved_percent") == -25.0);
  CHECK(TableView(trace).real(1, "improved_percent") == 0.0);
}

TEST_CASE("a run of a job's choices has no cells, and says so in place of a count", "[E-102]") {
  const ScratchFolder folder;
  const std::string db = folder.file("a.sqlite");
  {
    Store store(db);
    for (const char* id : {"job", "nothing"}) {
      RunInfo info;
      info.id = info.name = id;
      info.overrides = {"tune=job"};
      store.begin_run(info, {}, {});
      store.end_run(id, "complete");
    }
    DecisionLog log(db);
    DecisionInfo row;
    row.kind = "final";
    row.arm = "default";
    row.guard = "pass";
    row.task_key = "nccl/job/step/2^0/r2n1";
    row.state_json = row.candidates_json = row.asked_json = "{}";
    log.add(log.begin({"job", "job", "bandit", "", 1, "{}"}), {row, row});
  }
  CHECK(cell_counts(Reader(db), "job") == "2 choices of a search, no cells (query decisions)");
  CHECK(cell_counts(Reader(db), "nothing") == "no cells");
}

TEST_CASE("the atlas names the best method of each model, batch and number of workers",
          "[G-11][G-14]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.single_us = 90;
  figures.intensity = 7;
  SyntheticTraining training;
  training.methods = {{"bsp-a2a", R"({"model":"mlp","batch":"8"})"},
                      {"mg-wfbp", R"({"model":"mlp","batch":"8","bucket":"1MiB"})"},
                      {"bsp-a2a", R"({"model":"mlp","batch":"32"})"}};
  training.step_us = {120, 100, 300};
  store_training(store, training, figures, 4);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "atlas", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.integer(0, "batch") == 8);
  CHECK(rows.integer(0, "methods") == 2);
  CHECK(rows.real(0, "intensity") == 7.0);
  CHECK_THAT(rows.text(0, "best"), ContainsSubstring("mg-wfbp") && ContainsSubstring("1MiB"));
  CHECK(rows.text(0, "runner_up") == "bsp-a2a");
  CHECK(rows.text(0, "lead_is_sure") == "yes");
  CHECK(rows.integer(1, "batch") == 32);
  CHECK(rows.text(1, "runner_up").empty());
  CHECK(rows.text(1, "lead_is_sure") == "no");
}

TEST_CASE("the trace of a search shows each step's gain, and none where a guard took it back",
          "[G-20][G-21]") {
  TwoGroups run({1024});
  run.launch([](std::size_t, std::uint64_t, int) { return 10.0; });
  DecisionLog log(run.folder.file("a.sqlite"));
  const auto tuning = log.begin({"run-1", "live", "bandit", "", 1, "{}"});
  std::vector<DecisionInfo> steps;
  const auto add = [&](const char* task, const char* kind, const char* guard, double time_us,
                       std::uint64_t epoch) {
    DecisionInfo row;
    row.task_key = task;
    row.environment = "bare-metal";
    row.regime = "abcd";
    row.step = static_cast<int>(steps.size());
    row.kind = kind;
    row.arm = "arm";
    row.guard = guard;
    row.time_us = time_us;
    // The default's own time, from its logarithm.
    row.reference_us = 16 - 4e-15;
    row.epoch = epoch;
    row.state_json = row.candidates_json = row.asked_json = "{}";
    steps.push_back(row);
  };
  add("a", "reference", "pass", 16, 0);
  add("a", "explore", "pass", 12, 0);
  add("a", "explore", "slower-than-default", 20, 1);
  add("a", "final", "pass", 14, 2);
  add("b", "explore", "pass", 8, 0);
  add("b", "final", "slower-than-default", 17, 0);
  log.add(tuning, steps);
  const Table table = run.query("trace");
  const TableView rows(table);
  REQUIRE(rows.size() == 6);
  CHECK(rows.real(0, "improved_percent") == 0.0);
  CHECK(rows.real(1, "improved_percent") == 25.0);
  CHECK(rows.real(2, "best_so_far_us") == 12.0);
  CHECK(rows.text(2, "guard") == "slower-in-trial");
  CHECK(rows.text(5, "guard") == "slower-than-default");
  CHECK_THAT(rows.real(3, "improved_percent").value(), Catch::Matchers::WithinAbs(12.5, 1e-9));
  for (const std::size_t step : {0, 1, 3, 4, 5}) CHECK(rows.text(step, "broadcast").empty());
  CHECK(rows.text(2, "broadcast") == "new table");
  CHECK(rows.real(4, "improved_percent") == 50.0);
  CHECK(rows.real(5, "improved_percent") == 0.0);
  QueryScope scope;
  scope.where = {{"regime", "abcd"}, {"task_key", "b"}, {"guard", "slower-than-default"}};
  CHECK(named_query(Reader(run.folder.file("a.sqlite")), "decisions", scope).rows.size() == 1);
  scope.where = {{"task_key", "a"}, {"guard", "slower-in-trial"}};
  CHECK(named_query(Reader(run.folder.file("a.sqlite")), "decisions", scope).rows.size() == 1);
}

TEST_CASE("decisions name a regime as other queries do, and keep its digest beside it") {
  TwoGroups run({1024});
  run.launch([](std::size_t, std::uint64_t, int) { return 10.0; });
  const std::string digest = "0123456789abcdef";  // of its launches
  DecisionLog log(run.folder.file("a.sqlite"));
  const auto tuning = log.begin({"run-1", "live", "bandit", "", 1, "{}"});
  DecisionInfo row;
  row.task_key = "a";
  row.environment = "bare-metal";
  row.regime = digest;
  row.kind = "reference";
  row.arm = "library";
  row.guard = "pass";
  row.time_us = row.reference_us = 16;
  row.state_json = row.candidates_json = row.asked_json = "{}";
  log.add(tuning, {row});
  for (const char* query : {"trace", "decisions"}) {
    const Table table = run.query(query);
    const TableView rows(table);
    REQUIRE(rows.size() == 1);
    CHECK(rows.text(0, "regime") == "host-shm");
    CHECK(rows.text(0, "regime_id") == digest);
  }
}
