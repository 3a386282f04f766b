#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <map>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/no_rows.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"
#include "reports/render/report.hpp"
#include "reports/render/run_page.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/queries/trained_run.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// Bare metal takes 10, 11, 12 us in blocks 0, 1, 2; cross-docker twice that. Rank 1 is the slower.
double planted(const std::string& environment, int block, int rank) {
  return (environment == "bare-metal" ? 1.0 : 2.0) * (10.0 + block) - (rank == 0 ? 1.0 : 0.0);
}

class PlantedRun {
 public:
  explicit PlantedRun(const std::string& id = "run-1") : store(folder.file("a.sqlite")) {
    add_run(id);
  }

  void add_run(const std::string& id, const std::string& tool = "0.1.0") {
    plan = make_plan(id, {"bare-metal", "cross-docker", "singularity"}, {"allreduce"}, {1024});
    plan.run.tool_version = tool;
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 3; ++block) {
      for (const auto g : {0U, 1U}) {
        store_launch(store, plan, plan.groups[g], block, [&](const CellInfo&, int rank, int) {
          return planted(plan.groups[g].environment, block, rank);
        });
      }
    }
    store.mark_unsupported(id, plan.groups[2].id, "apptainer is not installed");
    store.end_run(id, "complete");
  }

  [[nodiscard]] Reader reader() const { return Reader(folder.file("a.sqlite")); }

  ScratchFolder folder;
  Store store;
  SyntheticPlan plan;
};

std::size_t row_of(const TableView& view, const std::string& environment) {
  for (std::size_t i = 0; i < view.size(); ++i) {
    if (view.text(i, "environment") == environment) return i;
  }
  FAIL("no row of environment " << environment);
  return 0;
}

}  // namespace

TEST_CASE("the design space has each axis, their product and what was measured of it",
          "[A-45][A-50]") {
  const PlantedRun run;
  const Table table = named_query(run.reader(), "design_space", {});
  const TableView rows(table);
  std::map<std::string, std::int64_t> counts;
  for (std::size_t i = 0; i < rows.size(); ++i)
    counts[rows.text(i, "item")] = rows.integer(i, "count");
  CHECK(counts.at("environment") == 3);
  CHECK(counts.at("backend") == 1);
  CHECK(counts.at("cross product of all axes") == 3);
  CHECK(counts.at("planned cells") == 3);
  CHECK(counts.at("cells ok") == 2);
  CHECK(counts.at("cells unsupported") == 1);
}

TEST_CASE("coverage has one object per cell with exactly the documented keys", "[A-38][A-50]") {
  const PlantedRun run;
  const auto list = nlohmann::json::parse(
      render_table(named_query(run.reader(), "coverage", {}), OutputFormat::json));
  REQUIRE(list.size() == 3);
  const std::set<std::string> keys{
      "environment", "backend",  "architecture", "collective", "ranks",    "size_bytes", "datatype",
      "algorithm",   "in_place", "group_knobs",  "cell_knobs", "launches", "status",     "reason"};
  for (const auto& cell : list) {
    std::set<std::string> have;
    for (const auto& [key, value] : cell.items()) have.insert(key);
    CHECK(have == keys);
  }
  CHECK(list[0]["environment"] == "bare-metal");
  CHECK(list[0]["launches"] == 3);
  CHECK(list[0]["status"] == "ok");
  CHECK(list[0]["reason"].is_null());
  CHECK(list[2]["status"] == "unsupported");
  CHECK(list[2]["launches"] == 0);
  CHECK(list[2]["reason"] == "apptainer is not installed");
}

TEST_CASE("queries look at the newest run unless told otherwise", "[G-01]") {
  PlantedRun run("run-1");
  run.add_run("other-2");
  const Reader reader = run.reader();
  CHECK(named_query(reader, "coverage", {}).rows.size() == 3);
  CHECK(named_query(reader, "coverage", {}).columns.front() == "environment");
  QueryScope all;
  all.all_runs = true;
  CHECK(named_query(reader, "coverage", all).rows.size() == 6);
  CHECK(named_query(reader, "coverage", all).columns.front() == "run_id");
  QueryScope one;
  one.runs = {"run"};
  CHECK(named_query(reader, "latency", one).rows.size() == 2);
  CHECK(reader.resolve_run("last") == "other-2");
  CHECK(reader.resolve_run("last~1") == "run-1");
  CHECK(list_runs(reader).rows.size() == 2);
  CHECK_THROWS_WITH(reader.resolve_run("last~2"), ContainsSubstring("holds only 2 runs"));
  CHECK_THROWS_WITH(reader.resolve_run("zzz"), ContainsSubstring("no run \"zzz\""));
}

TEST_CASE("latency and overhead come out as planted, paired by block", "[A-20][A-21][G-04]") {
  const PlantedRun run;
  const Reader reader = run.reader();
  const Table latency = named_query(reader, "latency", {});
  const TableView rows(latency);
  const auto bare = row_of(rows, "bare-metal");
  CHECK(rows.real(bare, "median_us") == 11.0);
  CHECK(rows.integer(bare, "launches") == 3);
  const auto interval = launch_interval({10.0, 11.0, 12.0});
  REQUIRE(interval);
  CHECK(rows.real(bare, "median_low_us") == interval->low);
  CHECK(rows.real(bare, "median_high_us") == interval->high);
  CHECK(rows.text(bare, "regime") == "host-shm");

  const Table overhead = named_query(reader, "overhead", {});
  const TableView ratio(overhead);
  REQUIRE(ratio.size() == 1);
  CHECK(ratio.text(0, "environment") == "cross-docker");
  CHECK_THAT(*ratio.real(0, "ratio"), WithinRel(2.0, 1e-12));
  // Every block has exactly the ratio 2: paired, there is no spread left.
  CHECK_THAT(*ratio.real(0, "ratio_low"), WithinRel(2.0, 1e-9));
  CHECK_THAT(*ratio.real(0, "ratio_high"), WithinRel(2.0, 1e-9));
  CHECK(ratio.text(0, "ratio_method") == "t-log-paired");
  CHECK_THAT(*ratio.real(0, "difference_percent"), WithinRel(100.0, 1e-9));
  CHECK(ratio.text(0, "verdict") == "SLOWER");
}

TEST_CASE("a filtered overhead query still knows its base", "[A-56]") {
  const PlantedRun run;
  QueryScope scope;
  scope.where = {{"environment", "cross-docker"}, {"size", "1KiB"}};
  CHECK(named_query(run.reader(), "overhead", scope).rows.size() == 1);
  CHECK(named_query(run.reader(), "latency", scope).rows.size() == 1);
  scope.where = {{"environment", "singularity"}};
  CHECK(named_query(run.reader(), "overhead", scope).rows.empty());
  scope.where = {{"backened", "openmpi"}};
  CHECK_THROWS_WITH(named_query(run.reader(), "latency", scope),
                    ContainsSubstring("unknown axis \"backened\"") &&
                        ContainsSubstring("Did you mean \"backend\""));
  CHECK_THROWS_WITH(named_query(run.reader(), "coverage", scope),
                    ContainsSubstring("Did you mean \"backend\""));
}

TEST_CASE("blocks measured as runs of their own are pooled where they are alike", "[A-20]") {
  PlantedRun run;
  run.add_run("run-2");
  QueryScope scope;
  scope.all_runs = true;
  CHECK(named_query(run.reader(), "latency", scope).rows.size() == 4);
  scope.pool = true;
  const Table table = named_query(run.reader(), "latency", scope);
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.integer(row_of(rows, "bare-metal"), "launches") == 6);
  CHECK(rows.real(row_of(rows, "bare-metal"), "median_us") == 11.0);
  // Blocks of both runs are paired each with its own.
  const Table overhead = named_query(run.reader(), "overhead", scope);
  const TableView ratio(overhead);
  REQUIRE(ratio.size() == 1);
  CHECK_THAT(*ratio.real(0, "ratio_high"), WithinRel(2.0, 1e-9));
  CHECK_THROWS_WITH(named_query(run.reader(), "coverage", scope), ContainsSubstring("--pool"));
  run.add_run("run-3", "0.2.0");
  CHECK_THROWS_WITH(named_query(run.reader(), "latency", scope),
                    ContainsSubstring("differ in tool") && ContainsSubstring("--run"));
}

TEST_CASE("one axis varies while all others are fixed", "[A-56][G-10]") {
  const PlantedRun run;
  const Table table = named_query(run.reader(), "axis", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.real(0, "bare-metal_us") == 11.0);
  CHECK(rows.real(0, "cross-docker_us") == 22.0);
  CHECK(rows.text(0, "winner") == "bare-metal");
  CHECK(rows.text(0, "winner_is_sure") == "yes");
  QueryScope by_backend;
  by_backend.vary = "backend";
  CHECK(named_query(run.reader(), "axis", by_backend).rows.empty());
  by_backend.vary = "colour";
  CHECK_THROWS_WITH(named_query(run.reader(), "axis", by_backend),
                    ContainsSubstring("unknown axis \"colour\""));
}

TEST_CASE("bandwidth follows nccl-tests and turns the interval around", "[A-20][G-13]") {
  const PlantedRun run;
  const Table table = named_query(run.reader(), "bandwidth", {});
  const TableView rows(table);
  const auto bare = row_of(rows, "bare-metal");
  CHECK_THAT(*rows.real(bare, "algbw_bytes_per_s"), WithinRel(1024 / 11.0 * 1e6, 1e-12));
  // All-reduce on 2 ranks: factor 2 (n - 1) / n = 1.
  CHECK_THAT(*rows.real(bare, "busbw_bytes_per_s"), WithinRel(1024 / 11.0 * 1e6, 1e-12));
  CHECK(*rows.real(bare, "algbw_low_bytes_per_s") < *rows.real(bare, "algbw_bytes_per_s"));
  CHECK(*rows.real(bare, "algbw_high_bytes_per_s") > *rows.real(bare, "algbw_bytes_per_s"));
}

TEST_CASE("components and the share of copies come out as planted", "[A-08][G-03]") {
  const PlantedRun run;
  const Table components = named_query(run.reader(), "components", {});
  const TableView rows(components);
  const auto bare = row_of(rows, "bare-metal");
  CHECK(rows.real(bare, "collective_us") == 11.0 * 0.75);
  CHECK(rows.real(bare, "h2d_us") == 11.0 * 0.25);
  CHECK_FALSE(rows.real(bare, "d2h_us").has_value());
  CHECK(rows.real(bare, "other_us") == 0.0);
  const Table share = named_query(run.reader(), "copy_share", {});
  const TableView shares(share);
  CHECK(shares.real(row_of(shares, "bare-metal"), "copies_share_percent") == 25.0);
}

TEST_CASE("the share of copies is the median of the launches' shares, inside its interval",
          "[A-08]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  // The median copy is 30 us, the median time 50 us: 60 %, which is one launch's share alone.
  for (int block = 0; block < 9; ++block) {
    const double total = 10.0 * (block + 1);
    const double share = block < 4 ? 0.2 : block == 4 ? 0.6 : 0.5;
    const auto start = make_start(plan.groups[0].id, block);
    auto ranks = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                              [&](const CellInfo&, int, int) { return total; });
    for (auto& rank : ranks) {
      for (auto& record : rank.records) {
        if (auto* cell = std::get_if<CellRecord>(&record))
          cell->measured.h2d_us.assign(10, share * total);
      }
    }
    store.finish_launch(store.begin_launch("run-1", start), make_end(), ranks);
  }
  const Table table = named_query(Reader(folder.file("a.sqlite")), "copy_share", {});
  const TableView rows(table);
  CHECK(rows.real(0, "copies_us") == 30.0);
  CHECK(rows.real(0, "median_us") == 50.0);
  CHECK_THAT(*rows.real(0, "copies_share_percent"), WithinRel(50.0, 1e-12));
  CHECK(*rows.real(0, "copies_share_low_percent") <= *rows.real(0, "copies_share_percent"));
  CHECK(*rows.real(0, "copies_share_high_percent") >= *rows.real(0, "copies_share_percent"));
}

TEST_CASE("a cell measured in one launch is printed without an interval", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  const Reader reader(folder.file("a.sqlite"));
  const Table table = named_query(reader, "latency", {});
  const TableView rows(table);
  CHECK(rows.real(0, "median_us") == 5.0);
  CHECK_FALSE(rows.real(0, "median_low_us").has_value());
  CHECK(rows.integer(0, "launches") == 1);
  const auto answer = render_full_answer(reader, "last");
  CHECK_THAT(answer, ContainsSubstring("one launch gives no interval"));
  CHECK_THAT(answer, !ContainsSubstring("5.00 us ["));
}

TEST_CASE("failed launches and failed cells enter no figure but are listed", "[A-38]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce", "broadcast"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto& group = plan.groups[0];
  const auto steady = [](double us) { return [us](const CellInfo&, int, int) { return us; }; };
  store_launch(store, plan, group, 0, steady(10));
  store_launch(store, plan, group, 1, steady(10));
  // Block 2: the launch fails although its cells were measured, at a wildly different time.
  auto start = make_start(group.id, 2);
  store.finish_launch(store.begin_launch("run-1", start),
                      make_end(LaunchStatus::failed, "world size 1, expected 2"),
                      make_records(plan.cells, group.id, start.uuid, 2, 10, steady(1000)));
  // Block 3: one wrong element fails its cell, not the other.
  start = make_start(group.id, 3);
  auto records = make_records(plan.cells, group.id, start.uuid, 2, 10, steady(10));
  for (auto& record : records[1].records) {
    auto* cell = std::get_if<CellRecord>(&record);
    if (cell != nullptr && cell->cell_id == plan.cells[0].id) cell->wrong = 1;
  }
  store.finish_launch(store.begin_launch("run-1", start), make_end(), records);

  const Reader reader(folder.file("a.sqlite"));
  const Table latency = named_query(reader, "latency", {});
  const TableView rows(latency);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "collective") == "allreduce");
  CHECK(rows.integer(0, "launches") == 2);
  CHECK(rows.integer(1, "launches") == 3);
  CHECK(rows.real(0, "median_us") == 10.0);
  CHECK(rows.real(1, "median_us") == 10.0);
  const Table coverage = named_query(reader, "coverage", {});
  const TableView cells(coverage);
  CHECK(cells.text(0, "status") == "failed");
  CHECK_THAT(cells.text(0, "reason"), ContainsSubstring("2 of 4 launches not ok, worst: "));
  const auto failures = render_table(named_query(reader, "failures", {}), OutputFormat::csv);
  CHECK_THAT(failures, ContainsSubstring("\"world size 1, expected 2\""));
  const auto answer = render_full_answer(reader, "last");
  CHECK_THAT(answer, ContainsSubstring("failed or not measured"));
}

TEST_CASE("the answer names method, ratio, held settings and what is unsupported", "[G-26]") {
  const PlantedRun run;
  const auto answer = render_full_answer(run.reader(), "last");
  CHECK_THAT(answer, ContainsSubstring("run run-1 (synthetic), complete: 3 cells: 2 ok, 1 "
                                       "unsupported"));
  CHECK_THAT(answer, ContainsSubstring("ring allreduce, 2 ranks, float32"));
  CHECK_THAT(answer, ContainsSubstring("1 KiB  bare-metal"));
  CHECK_THAT(answer, ContainsSubstring("2.00 [2.00, 2.00]"));
  CHECK_THAT(answer,
             ContainsSubstring("held fixed: algorithm library, launches 3, regime host-shm"));
  CHECK_THAT(answer, ContainsSubstring("method: max of the ranks' times per iteration; isolated "
                                       "cadence, 1 call per sample; barrier dissemination; median "
                                       "of 3 launches' medians"));
  CHECK_THAT(answer, ContainsSubstring("apptainer is not installed"));
}

TEST_CASE("the Markdown report has every section and the CSV report every cell", "[G-26]") {
  const PlantedRun run;
  const auto markdown = render_report_markdown(run.reader(), "last");
  for (const char* part :
       {"# synthetic", "## Design space", "## Regimes", "## Transports",
        "## ring allreduce, 2 ranks, float32", "## Overhead of environments", "## Best choice",
        "## Which environment", "## Components", "## Unsupported here", "| 1 KiB | bare-metal |"}) {
    CHECK_THAT(markdown, ContainsSubstring(part));
  }
  const auto csv = render_report_figures(run.reader(), "last", OutputFormat::csv);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 4);
  CHECK_THAT(csv, ContainsSubstring(",unsupported,apptainer is not installed,,,"));
  // Every row has as many fields as the head.
  const auto head = csv.substr(0, csv.find("\r\n"));
  const auto last = csv.substr(csv.rfind("\r\n", csv.size() - 3) + 2);
  CHECK(std::count(head.begin(), head.end(), ',') == std::count(last.begin(), last.end(), ','));
}

TEST_CASE("show gives the run with groups, launches, commands and provenance", "[G-01]") {
  const PlantedRun run;
  const Reader reader = run.reader();
  const auto text = render_run(reader, "run", OutputFormat::text);
  for (const char* part : {"run_id: run-1", "seed: 18446744073709551615", "mpirun -np 2",
                           "Open MPI 4.1.4", "kernel: 6.1", "name = \"synthetic\""}) {
    CHECK_THAT(text, ContainsSubstring(part));
  }
  const auto json = nlohmann::json::parse(render_run(reader, "run-1", OutputFormat::json));
  CHECK(json["groups"].size() == 3);
  CHECK(json["launches"].size() == 6);
  CHECK(json["launches"][0]["argv_json"] == nlohmann::json{"mpirun", "-np", "2"});
  CHECK(json["protocol_json"]["launches"] == 3);
}

TEST_CASE("every listed query runs, on an empty database too", "[G-01]") {
  const PlantedRun run;
  const ScratchFolder folder;
  const Store empty(folder.file("empty.sqlite"));
  const Reader nothing(folder.file("empty.sqlite"));
  for (const auto& query : all_queries()) {
    INFO(query.name);
    CHECK_FALSE(query.title.empty());
    CHECK_FALSE(query.row.empty());
    CHECK_FALSE(named_query(run.reader(), query.name, {}).columns.empty());
    CHECK_NOTHROW(named_query(nothing, query.name, {}));
  }
  CHECK_THROWS_WITH(render_full_answer(nothing, "last"), ContainsSubstring("holds no run yet"));
}

TEST_CASE("an unknown query names the known ones and the nearest", "[A-56]") {
  const PlantedRun run;
  CHECK_THROWS_WITH(named_query(run.reader(), "latancy", {}),
                    ContainsSubstring("unknown query \"latancy\"") &&
                        ContainsSubstring("Did you mean \"latency\""));
}

TEST_CASE("rows cannot be chosen by a name that there is not", "[A-56]") {
  const PlantedRun run;
  const auto rows = [&](const char* query, const char* column, const char* value) {
    QueryScope scope;
    scope.where = {{column, value}};
    return named_query(run.reader(), query, scope).rows.size();
  };
  CHECK_THROWS_WITH(rows("latency", "backend", "glo"),
                    ContainsSubstring("--where backend=glo: unknown backend \"glo\"; known: ") &&
                        ContainsSubstring("Did you mean \"gloo\"?"));
  CHECK_THROWS_WITH(rows("coverage", "collective", "alreduce"),
                    ContainsSubstring("Did you mean \"allreduce\"?"));
  CHECK(rows("latency", "backend", "nccl") == 0);
  CHECK(rows("latency", "backend", "openmpi") > 0);
}

TEST_CASE("an empty answer says why, and what to type for another", "[G-01]") {
  PlantedRun run;
  const auto why = [&](const char* query, QueryScope scope = {}) {
    const Reader reader = run.reader();
    REQUIRE(named_query(reader, query, scope).rows.empty());
    return why_no_rows(reader, query_named(query), scope);
  };
  const std::string db = " --db " + run.folder.file("a.sqlite") + "\n";
  CHECK_THAT(why("training"),
             ContainsSubstring("query training: no rows: a row is one training cell") &&
                 ContainsSubstring("and run run-1 (synthetic) has none; this measures some:\n  "
                                   "dynamiccl run experiments/training_grid.toml" +
                                   db));
  CHECK_THAT(why("decisions"),
             ContainsSubstring("  dynamiccl tune search experiments/tune_smoke.toml" + db));
  CHECK_THAT(why("floor"), ContainsSubstring("it needs NCCL and Gloo in the same cells"));
  // No row is an answer here.
  CHECK_THAT(why("events"), ContainsSubstring("has none: nothing out of the ordinary was noted") &&
                                !ContainsSubstring("measures some"));
  QueryScope scope;
  scope.where = {{"size_bytes", "3MiB"}};
  CHECK_THAT(why("overhead", scope),
             ContainsSubstring("no row meets --where size_bytes=3MiB; without it there is one"));
  // The newest run is a training; an older one has what is asked for.
  store_training(run.store, {{{"wfbp", "{}"}}, {100}}, usual_figures(), 2);
  CHECK_THAT(
      why("overhead"),
      ContainsSubstring("it needs the same cells on bare metal and in another environment") &&
          ContainsSubstring("run run-1 (synthetic) has one:\n  dynamiccl query overhead "
                            "--run run-1" +
                            db));
  // What is typed asks what was counted.
  CHECK_THAT(why("axis"), ContainsSubstring("it needs cells that differ in environment alone; run "
                                            "run-1 (synthetic) has ") &&
                              ContainsSubstring("  dynamiccl query axis --vary environment --run "
                                                "run-1" +
                                                db));
  scope = {};
  scope.vary = "ranks";
  CHECK_THAT(why("axis", scope), ContainsSubstring("it needs cells that differ in ranks alone, as "
                                                   "with --set axes.ranks=[...]"));
  scope = {};
  scope.all_runs = true;
  CHECK_THAT(why("decisions", scope),
             ContainsSubstring("none of the 2 runs that were asked has one"));
}

TEST_CASE("why a query has no rows is said of the run that it looked at, not of a failed try") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto measured = make_plan("measured", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(measured.run, measured.groups, measured.cells);
  store.end_run("measured", "complete");
  auto tried = make_plan("tried", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(tried.run, {}, {});
  store.end_run("tried", "failed");
  CHECK_THAT(why_no_rows(Reader(folder.file("a.sqlite")), query_named("latency"), {}),
             ContainsSubstring("and run measured (synthetic) has none"));
}

TEST_CASE("an empty database is not taken for an empty run") {
  const ScratchFolder folder;
  const Store store(folder.file("a.sqlite"));
  CHECK_THAT(why_no_rows(Reader(folder.file("a.sqlite")), query_named("latency"), {}),
             ContainsSubstring("holds no run yet; measure one:\n  dynamiccl run "
                               "experiments/quickstart.toml --db "));
}

TEST_CASE("what a query is measured by is there") {
  const auto check = [](const std::string& command) {
    INFO(command);
    const auto words = split(command, ' ');
    REQUIRE(words.size() >= 2);
    CHECK((words[0] == "run" || words[0] == "tune"));
    // Behind the mode of tune.
    const auto& file = words[words[0] == "tune" ? 2 : 1];
    CHECK(std::filesystem::exists(DYNAMICCL_SOURCE_DIR "/" + file));
  };
  for (const auto& theme : query_themes()) check(std::string(theme.measured_by));
  for (const auto& query : all_queries())
    if (!query.measured_by.empty()) check(query.measured_by);
}

TEST_CASE("one word is a named query, anything else SQL", "[G-01]") {
  const PlantedRun run;
  const Reader reader = run.reader();
  CHECK(any_query(reader, " coverage ", {}).rows.size() == 3);
  CHECK(any_query(reader, "SELECT count(*) AS n FROM v_cell", {}).columns.front() == "n");
  QueryScope scope;
  scope.where = {{"backend", "openmpi"}};
  CHECK_THROWS_WITH(any_query(reader, "SELECT 1 AS n", scope), ContainsSubstring("WHERE run_id"));
}

namespace {

/// Names of regimes stay whole, to be copied.
void check_fits(const Reader& reader) {
  constexpr std::size_t kWidth = 100;
  std::size_t asked = 0;
  for (const auto& query : all_queries()) {
    const Table table = named_query(reader, query.name, {});
    if (!table.rows.empty()) ++asked;
    const auto text =
        render_table(table, OutputFormat::text, columns_of(query.name, table), kWidth);
    INFO(query.name << "\n" << text);
    for (const auto& line : split(text, '\n'))
      if (!line.starts_with("regime r")) CHECK(columns_of_text(line) <= kWidth);
  }
  CHECK(asked > 10);
}

}  // namespace

TEST_CASE("every query's table fits a terminal of 100 columns") {
  const PlantedRun run;
  check_fits(run.reader());
  TrainedCase wfbp{.method = "wfbp", .model = "mlp:8-16-4", .figures = usual_figures()};
  TrainedCase dear = wfbp;
  dear.method = "dear";
  dear.environment = "single-docker";
  const TrainedRun trained({wfbp, dear});
  check_fits(Reader(trained.file()));
}
