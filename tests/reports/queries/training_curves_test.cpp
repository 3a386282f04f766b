// What the steps of a training cell leave beside their times: curves, messages, one step's trace.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/step_trace.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

const std::string kSettings = R"({"model":"mlp","batch":"8"})";

json span(const std::string& name, const char* category, double start_us, double took_us) {
  return {{"name", name}, {"cat", category}, {"ph", "X"},     {"ts", start_us},
          {"pid", 0},     {"tid", 0},        {"dur", took_us}};
}

json message(const std::string& name, double start_us, double took_us, int bytes) {
  json event = span(name, "communication", start_us, took_us);
  event["tid"] = 1;
  event["args"] = {{"bytes", bytes}};
  return event;
}

/// Forward from 1000 to 1030, backward to 1090; a message of the step before, and three of this.
json small_trace() {
  return json::array({span("forward 0", "computation", 1000, 30),
                      span("backward 0", "computation", 1030, 60),
                      message("all-gather 0", 1005, 20, 400), message("reduce 2", 1060, 10, 400),
                      message("reduce 1", 1080, 10, 100), message("reduce 0", 1095, 20, 100)});
}

}  // namespace

TEST_CASE("a curve runs over steps, samples and time, warm-up included", "[A-13][G-24]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.accuracy = 0.75;
  // Two steps of warm-up, 1000 and 900 us, and ten measured ones.
  figures.details["losses"] = {5.0, 4.0, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1};
  figures.wire_bytes = 500;
  store_training(store, {{{"bsp-a2a", kSettings}}, {100}}, figures, 3);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "curves", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 12);
  CHECK(rows.text(0, "method") == "bsp-a2a");
  CHECK(rows.integer(0, "block") == 1);  // the median launch
  CHECK(rows.integer(0, "step") == 1);
  CHECK(rows.integer(0, "samples") == 16);
  CHECK(rows.real(0, "loss") == 5.0);
  CHECK(rows.real(0, "trained_us") == 1000.0);
  CHECK_FALSE(rows.real(0, "accuracy"));
  CHECK(rows.integer(11, "samples") == 12 * 16);
  CHECK(rows.real(11, "loss") == 2.1);
  CHECK_THAT(*rows.real(11, "trained_us"), WithinRel(1900 + 10 * 101.0, 1e-9));
  CHECK(rows.real(11, "accuracy") == 0.75);
  CHECK(rows.real(11, "sent_bytes") == 12 * 500.0);
}

TEST_CASE("epochs start anew: their curve begins behind the warm-up", "[A-12]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.accuracy = 0.9;
  figures.details["losses"] = {3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1};
  // The first programs recorded the losses of the warm-up, too.
  const bool with_warmup = GENERATE(false, true);
  if (with_warmup)
    figures.details["losses"] = {5.0, 4.0, 3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1};
  figures.details["epochs"] = 2;
  figures.details["accuracies"] = {{5, 0.6}, {10, 0.9}};
  store_training(store, {{{"dear", kSettings}}, {100}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "curves", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 10);
  CHECK(rows.real(0, "loss") == 3.0);
  CHECK(rows.real(9, "loss") == 2.1);
  CHECK(rows.real(0, "trained_us") == 100.0);
  CHECK(rows.real(4, "accuracy") == 0.6);
  CHECK_FALSE(rows.real(5, "accuracy"));
  CHECK(rows.real(9, "accuracy") == 0.9);
}

TEST_CASE("bytes of post-local's curve come as its exchanges do", "[D-17][G-23]") {
  const bool by_epochs = GENERATE(false, true);
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  // Rounds of four steps, an exchange of 100 bytes in each of their steps until three are done,
  // then one. Ten are measured: with epochs all, else those behind a warm-up of two.
  if (by_epochs) figures.details["epochs"] = 2;
  figures.wire_bytes = 100 * (by_epochs ? 3 * 4 + 7 : 4 + 9) / 10.0;
  const std::string settings = R"({"model":"mlp","batch":"8","synchronisation":"post-local",)"
                               R"("local_steps":"4","local_after":"12"})";
  store_training(store, {{{"bsp-a2a", settings}}, {100}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "curves", {});
  const TableView rows(table);
  REQUIRE(rows.size() == (by_epochs ? 10 : 12));
  CHECK_THAT(*rows.real(0, "sent_bytes"), WithinRel(400.0, 1e-9));
  CHECK_THAT(*rows.real(2, "sent_bytes"), WithinRel(1200.0, 1e-9));
  CHECK_THAT(*rows.real(3, "sent_bytes"), WithinRel(1300.0, 1e-9));
  CHECK_THAT(*rows.real(9, "sent_bytes"), WithinRel(1900.0, 1e-9));
}

TEST_CASE("sizes and times of the messages that a method makes", "[D-53]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["pieces"] = {{0, 25, 0}, {25, 25, 0}, {50, 100, 0}};
  figures.details["trace"] = small_trace();
  store_training(store, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "messages", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "messages") == 3);
  CHECK(rows.integer(0, "total_bytes") == 600);
  CHECK(rows.integer(0, "smallest_bytes") == 100);
  CHECK(rows.integer(0, "median_bytes") == 100);
  CHECK(rows.integer(0, "p75_bytes") == 400);
  CHECK(rows.integer(0, "largest_bytes") == 400);
  CHECK(rows.real(0, "backward_start_us") == 30.0);
  CHECK(rows.real(0, "backward_end_us") == 90.0);
  CHECK(rows.real(0, "first_start_us") == 60.0);
  CHECK(rows.real(0, "last_start_us") == 95.0);
  CHECK(rows.real(0, "median_gap_us") == 15.0);
  CHECK(rows.real(0, "largest_gap_us") == 20.0);
  CHECK(rows.real(0, "traced_us") == 115.0);
  // 400 bytes with 30 us of 60 ahead, 100 with 10, 100 behind.
  CHECK_THAT(*rows.real(0, "backward_left"), WithinRel((400 * 0.5 + 100 / 6.0) / 600, 1e-9));
}

TEST_CASE(
    "single calls of all measured steps: their times, early and late, and how evenly they come",
    "[A-17][D-39]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["pieces"] = {{0, 25, 0}, {25, 100, 0}};
  json each = json::array();
  json steps = json::array();
  // The large message becomes faster half way, as when a tuner has found a setting.
  for (int step = 0; step < 20; ++step) {
    each.push_back({step, 0, 0, 10.0, 5.0 + step});
    each.push_back({step, 0, 1, 60.0, step < 10 ? 80.0 : 40.0});
    if (step == 0) continue;
    steps.push_back({2, 85.0 + step, 50.0, 100.0 + step, json()});
  }
  steps.push_back({2, 85.0, json(), json(), json()});
  figures.details["calls"] = {{"burstiness", 0.25},
                              {"kinds", {"reduce"}},
                              {"each", each},
                              {"left_out", 3},
                              {"steps", steps}};
  store_training(store, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "calls", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "kind") == "reduce");
  CHECK(rows.integer(0, "message_bytes") == 100);
  CHECK(rows.integer(0, "steps") == 20);
  CHECK(rows.integer(0, "calls") == 20);
  CHECK(rows.integer(0, "left_out") == 3);
  CHECK(rows.real(0, "call_us") == 14.5);
  CHECK(rows.real(0, "p99_us") == 24.0);
  CHECK(rows.real(0, "first_us") == 5.5);
  CHECK(rows.real(0, "last_us") == 23.5);
  CHECK(rows.integer(1, "message_bytes") == 400);
  CHECK(rows.real(1, "call_us") == 60.0);
  CHECK(rows.real(1, "first_us") == 80.0);
  CHECK(rows.real(1, "last_us") == 40.0);
  CHECK(rows.real(1, "gap_us") == 50.0);
  CHECK(rows.real(1, "largest_gap_us") == 110.0);
  CHECK(rows.real(1, "burstiness") == 0.25);
  // 500 bytes in 85 to 94 us, then in 55 to 64 us.
  CHECK_THAT(*rows.real(0, "step_bandwidth"), WithinRel(500e6 * (1 / 64.0 + 1 / 85.0) / 2, 1e-9));
  CHECK_THAT(*rows.real(0, "lowest_bandwidth"), WithinRel(500e6 / 94, 1e-9));
  // Runs of before have no such figures.
  Store older(folder.file("older.sqlite"));
  figures.details.erase("calls");
  store_training(older, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
  CHECK(named_query(Reader(folder.file("older.sqlite")), "calls", {}).rows.empty());
}

TEST_CASE("a call with bytes of its own, as to a server that answers each worker, has those",
          "[A-17][E-133]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["pieces"] = {{0, 25, 0}, {25, 100, 0}};
  figures.details["calls"] = {{"burstiness", json()},
                              {"kinds", {"push", "pull"}},
                              {"each", {{0, 0, 0, 10.0, 4.0, 500}, {0, 1, 0, 14.0, 6.0, 500}}},
                              {"left_out", 0},
                              {"steps", {{2, 10.0, 4.0, 4.0, json()}}}};
  store_training(store, {{{"ps", kSettings}}, {120}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "calls", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "kind") == "pull");
  CHECK(rows.integer(0, "message_bytes") == 500);
  CHECK(rows.integer(1, "message_bytes") == 500);
  CHECK_THAT(*rows.real(0, "step_bandwidth"), WithinRel(100e6, 1e-9));
}

TEST_CASE("energy of steps is that of all workers' GPUs together", "[H-13]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["energy"] = {{"joules", 90.0}, {"seconds", 0.3}, {"steps", 30}};
  store_training(store, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
  const Reader reader(folder.file("a.sqlite"));
  const Table counted = reader.query("SELECT count(*) AS n FROM training");
  const auto all = static_cast<double>(TableView(counted).integer(0, "n"));
  const Table table = named_query(reader, "energy", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(static_cast<double>(rows.integer(0, "gpus")) == all);
  CHECK_THAT(*rows.real(0, "joules_per_step"), WithinRel(3 * all, 1e-9));
  CHECK_THAT(*rows.real(0, "watts"), WithinRel(300 * all, 1e-9));
  CHECK_THAT(*rows.real(0, "joules_per_sample"),
             WithinRel(3.0 / static_cast<double>(rows.integer(0, "batch")), 1e-9));
  CHECK(rows.real(0, "seconds") == 0.3);
  Store other(folder.file("b.sqlite"));
  figures.details["energy"] = {{"unknown", "no driver"}};
  store_training(other, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
  const Table unknown = named_query(Reader(folder.file("b.sqlite")), "energy", {});
  CHECK(TableView(unknown).integer(0, "gpus") == 0);
  CHECK(TableView(unknown).text(0, "note") == "no driver");
}

TEST_CASE("an engine's buckets are its messages, though it tells no times", "[D-53]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["pieces"] = {{0, 25, 0}, {25, 125, 0}};
  figures.details["engine_buckets"] = {100, 200, 300};
  figures.details["trace"] = json::array({span("forward 0", "computation", 1000, 30)});
  store_training(store, {{{"ddp", kSettings}}, {120}}, figures, 1);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "messages", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.integer(0, "messages") == 3);
  CHECK(rows.integer(0, "median_bytes") == 200);
  CHECK_FALSE(rows.real(0, "first_start_us"));
  CHECK_FALSE(rows.real(0, "largest_gap_us"));
}

TEST_CASE("a step's trace is of all ranks, named, in Chrome's format", "[D-53]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  figures.details["trace"] = small_trace();
  store_training(store, {{{"wfbp-a2a", kSettings}, {"dear", kSettings}}, {120, 130}}, figures, 3);
  const Reader reader(folder.file("a.sqlite"));
  const json trace = step_trace(reader, "last", "dear");
  CHECK(trace.at("displayTimeUnit") == "ms");
  CHECK_THAT(trace.at("otherData").at("cell").get<std::string>(), ContainsSubstring("dear of mlp"));
  CHECK(trace.at("otherData").at("clock_error_us") == "clocks were not compared");
  int spans = 0;
  std::vector<std::string> names;
  double before_us = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      if (event.at("name") != "process_sort_index") names.push_back(event.at("args").at("name"));
      continue;
    }
    ++spans;
    CHECK(event.at("ph") == "X");
    CHECK(event.at("dur") > 0);
    CHECK(event.at("tid") == (event.at("cat") == "communication" ? 1 : 0));
    const double start_us = event.at("ts");
    CHECK(start_us >= before_us);
    before_us = start_us;
  }
  CHECK(spans == 12);
  CHECK(before_us == 95.0);  // from the first span on
  CHECK(names == std::vector<std::string>{"rank 0, worker", "computation", "communication",
                                          "rank 1, worker", "computation", "communication"});
  // The same by the beginning of its id.
  const std::string id = text(reader, "SELECT cell_id FROM v_training WHERE method = 'dear'");
  CHECK(step_trace(reader, "last", id.substr(0, 8)) == trace);
  CHECK(step_trace(reader, "last", id + "\r\n") == trace);  // as CSV has it
}

TEST_CASE("spans of machines of their own are put on rank 0's clock", "[D-53]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("apart", {"bare-metal"}, {"training"}, {1024});
  plan.cells[0].algorithm = "wfbp-a2a";
  plan.cells[0].knobs_json = kSettings;
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto start = make_start(plan.groups[0].id, 0);
  const auto launch = store.begin_launch(plan.run.id, start);
  auto files = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                            [](const CellInfo&, int, int) { return 100.0; });
  for (int rank = 0; rank < 2; ++rank) {
    // Rank 1's clock is ahead by 5,000 us, later by 5,010.
    const double ahead_us = rank * 5000.0;
    TrainingFigures figures;
    figures.role = "worker";
    figures.details["trace"] =
        json::array({span("forward 0", "computation", 1000 + ahead_us + 5 * rank, 30)});
    auto& records = files[static_cast<std::size_t>(rank)].records;
    for (auto& record : records)
      if (auto* cell = std::get_if<CellRecord>(&record)) cell->training = figures;
    ClockRecord clock;
    clock.rank = rank;
    clock.shared = rank == 0;
    clock.offset_us = ahead_us;
    clock.end_offset_us = ahead_us + 10 * rank;
    clock.error_us = 2;
    clock.end_error_us = 3;
    records.insert(records.end() - 1, clock);
  }
  store.finish_launch(launch, make_end(), files);
  const json trace = step_trace(Reader(folder.file("a.sqlite")), "last", "wfbp-a2a");
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") CHECK(event.at("ts") == 0.0);
  CHECK(trace.at("traceEvents").back().at("pid") == 1);
  CHECK(trace.at("otherData").at("clock_error_us") == 3.0);
}

TEST_CASE("a trace that is not there is told with those that are") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  SECTION("no cell of the run has one") {
    store_training(store, {{{"wfbp-a2a", kSettings}}, {120}}, figures, 1);
    CHECK_THROWS_WITH(step_trace(Reader(folder.file("a.sqlite")), "last", "wfbp-a2a"),
                      ContainsSubstring("2 ranks: its ranks stored none; no cell of the run has"));
  }
  SECTION("a server answers each worker by itself") {
    figures.details["trace"] = json::array();
    figures.details["staleness"] = json{{"mean", 0.5}, {"dropped", 0}};
    const std::string ssp = R"({"model":"mlp","batch":"8","synchronisation":"ssp"})";
    store_training(store, {{{"bsp-ps", ssp}}, {120}}, figures, 1);
    CHECK_THROWS_WITH(step_trace(Reader(folder.file("a.sqlite")), "last", "bsp-ps"),
                      ContainsSubstring("bsp-ps, ssp, of mlp on bare-metal") &&
                          ContainsSubstring("answers each worker by itself there (ssp)") &&
                          ContainsSubstring("query curves"));
  }
  SECTION("nothing was trained") {
    const auto plan = make_plan("other", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
    CHECK_THROWS_WITH(step_trace(Reader(folder.file("a.sqlite")), "last", "wfbp-a2a"),
                      ContainsSubstring("trained nothing that counts"));
  }
  SECTION("a name means none or two") {
    figures.details["trace"] = small_trace();
    const std::string other = R"({"model":"cnn","batch":"8"})";
    store_training(store, {{{"wfbp-a2a", kSettings}, {"wfbp-a2a", other}}, {120, 130}}, figures, 1);
    const Reader reader(folder.file("a.sqlite"));
    CHECK_THROWS_WITH(step_trace(reader, "last", "dear"),
                      ContainsSubstring("--trace dear: no training cell") &&
                          ContainsSubstring("wfbp-a2a of cnn on bare-metal, openmpi, 2 ranks"));
    CHECK_THROWS_WITH(step_trace(reader, "last", "wfbp-a2a"),
                      ContainsSubstring("2 cells of run") && ContainsSubstring("of mlp"));
  }
}
