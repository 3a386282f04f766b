#include <SQLiteCpp/SQLiteCpp.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "reports/model/table_view.hpp"
#include "reports/page/html_report.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"
#include "reports/render/report.hpp"
#include "reports/render/run_diff.hpp"
#include "tests/reports/compare/compared_runs.hpp"
#include "tests/reports/page/page_data.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Runs of openmpi and gloo on bare metal and of openmpi in Docker, at 1 KiB and 64 KiB. What is
/// not openmpi on bare metal takes 1.6 times as long there, far outside all noise.
class Timed : public Runs {
 public:
  void add_run(const std::string& id) {
    auto plan = make_plan(id, {"bare-metal", "gloo", "cross-docker"}, {"allreduce"}, {1024, 65536});
    plan.groups[1].environment = "bare-metal";
    plan.groups[1].backend = "gloo";
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 6; ++block)
      for (const auto& group : plan.groups)
        store_launch(store, plan, group, block, [&](const CellInfo&, int, int) {
          return (&group == plan.groups.data() ? 10.0 : 16.0) * (1 + 0.001 * (block % 3));
        });
    store.end_run(id, "complete");
    batch_all();
  }

  void batch_all() const { change("cadence = 'batched'", "TRUE"); }
  void isolate(const std::string& run, const std::string& where) const {
    change("cadence = 'isolated'", "run_id = '" + run + "' AND " + where);
  }

  [[nodiscard]] Reader reader() const { return Reader(folder.file("a.sqlite")); }

  [[nodiscard]] Table query(const std::string& name,
                            const std::string& vary = "environment") const {
    QueryScope scope;
    scope.vary = vary;
    return named_query(reader(), name, scope);
  }

  /// Values of a column over all rows, each once.
  [[nodiscard]] std::set<std::string> all_of(const std::string& column, const std::string& name,
                                             const std::string& vary = "environment") const {
    const Table table = query(name, vary);
    const auto at = column_index(table, column);
    REQUIRE(at);
    std::set<std::string> values;
    for (const auto& row : table.rows) values.insert(plain_text(row[*at]));
    return values;
  }

 private:
  void change(const std::string& set, const std::string& where) const {
    SQLite::Database(folder.file("a.sqlite"), SQLite::OPEN_READWRITE)
        .exec("UPDATE measurement SET " + set +
              " WHERE id IN (SELECT measurement_row FROM v_measurement WHERE " + where + ")");
  }
};

using Texts = std::set<std::string>;

}  // namespace

TEST_CASE("one cadence is judged by every query", "[A-56][G-10]") {
  Timed runs;
  runs.add_run("run-1");
  runs.isolate("run-1", "size_bytes = 65536");  // both sides of each pair are alike
  CHECK(runs.all_of("winner_is_sure", "axis") == Texts{"yes"});
  CHECK(runs.all_of("winner_is_sure", "tradeoffs", "backend").contains("yes"));
  CHECK(runs.all_of("is_sure", "crossover", "backend") == Texts{"yes"});
  CHECK(runs.all_of("cadence", "crossover", "backend") == Texts{"batched, isolated"});
  CHECK(runs.all_of("cadence", "axis", "backend") == Texts{"batched", "isolated"});
  CHECK(runs.all_of("verdict", "overhead") == Texts{"SLOWER"});
}

TEST_CASE("a line over calls alone and calls back to back has no interval", "[A-23]") {
  Timed runs;
  runs.add_run("run-1");
  const auto lines_with_interval = [&](const std::string& cadence) {
    const Table fits = runs.query("fit");
    const TableView lines(fits);
    std::size_t found = 0;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines.text(i, "cadence") == cadence && lines.real(i, "alpha_low_us")) ++found;
    return found;
  };
  CHECK(lines_with_interval("batched") > 0);
  runs.isolate("run-1", "size_bytes = 65536");
  CHECK(lines_with_interval("batched, isolated") == 0);
  CHECK_THAT(query_named("fit").method, ContainsSubstring("none over sizes timed by different"));
}

TEST_CASE("calls alone against calls back to back are judged by no query", "[A-56][G-10]") {
  Timed runs;
  runs.add_run("run-1");
  runs.isolate("run-1", "(environment = 'cross-docker' OR backend = 'gloo')");
  for (const char* axis : {"environment", "backend"}) {
    CAPTURE(axis);
    CHECK(runs.all_of("winner_is_sure", "axis", axis) == Texts{"no"});
    CHECK(runs.all_of("winner_is_sure", "tradeoffs", axis) == Texts{"no"});
    CHECK(runs.all_of("is_sure", "crossover", axis) == Texts{"no"});
    CHECK(runs.all_of("cadence", "crossover", axis) == Texts{"batched against isolated"});
  }
  CHECK(runs.all_of("finding", "findings") == Texts{"nothing sure"});
  CHECK(runs.all_of("verdict", "overhead") == Texts{"UNCLEAR"});
  const Table best = runs.query("best");
  const TableView row(best);
  CHECK(row.text(0, "best_backend") == "openmpi");
  CHECK(row.text(0, "lead_is_sure") == "no");
  CHECK(row.text(0, "cadence") == "batched, isolated");
  CHECK(row.real(0, "lead"));
  CHECK(!row.real(0, "lead_low"));
  CHECK_THAT(query_named("best").method, ContainsSubstring("different cadences is not judged"));
}

TEST_CASE("a lead is not sure while one that was timed otherwise may be ahead") {
  Timed runs;
  auto plan = make_plan("run-1", {"openmpi", "gloo", "mpich"}, {"allreduce"}, {1024});
  for (auto& group : plan.groups) {
    group.backend = group.environment;
    group.environment = "bare-metal";
  }
  runs.store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 6; ++block)
    for (std::size_t g = 0; g < 3; ++g)
      store_launch(runs.store, plan, plan.groups[g], block, [&](const CellInfo&, int, int) {
        return (10.0 + 4.0 * static_cast<double>(g)) * (1 + 0.001 * block);
      });
  runs.batch_all();
  CHECK(runs.all_of("lead_is_sure", "best") == Texts{"yes"});
  runs.isolate("run-1", "backend = 'mpich'");  // third, by a time that is longer for its timing
  CHECK(runs.all_of("lead_is_sure", "best") == Texts{"no"});
  CHECK(runs.all_of("winner_is_sure", "axis", "backend") == Texts{"no"});
}

TEST_CASE("reports and the page give no interval of a ratio across cadences", "[G-04]") {
  Timed runs;
  runs.add_run("run-1");
  runs.isolate("run-1", "environment = 'cross-docker' AND size_bytes = 1024");
  const auto text = render_full_answer(runs.reader(), "run-1");
  CHECK_THAT(text, ContainsSubstring("1.60 ") && ContainsSubstring("1.60 [1.60, 1.60]"));
  CHECK_THAT(text,
             ContainsSubstring("no interval of the ratio where environment and bare-metal have"));
  CHECK_THAT(render_report_markdown(runs.reader(), "run-1"), ContainsSubstring("| 1.60 |"));
  const auto cells = data_of(render_report_html(runs.reader(), "run-1")).at("cells");
  const auto& columns = cells.at("columns");
  int compared = 0;
  for (std::size_t i = 0; i < columns.at("ratio").size(); ++i) {
    if (columns["ratio"][i].is_null()) continue;
    ++compared;
    const bool mixed = columns["size"][i] == 1024;
    CHECK(columns["ratio_low"][i].is_null() == mixed);
    CHECK(cells["verdicts"][columns["verdict"][i].get<std::size_t>()] ==
          (mixed ? "UNCLEAR" : "SLOWER"));
  }
  CHECK(compared == 2);
}

TEST_CASE("runs that timed a cell in two ways are not pooled into one figure of it", "[A-20]") {
  Timed runs;
  for (const char* id : {"run-1", "run-2", "run-3"}) runs.add_run(id);
  runs.isolate("run-1", "backend = 'gloo' AND size_bytes = 1024");
  runs.isolate("run-2", "backend = 'gloo' AND size_bytes = 1024");
  QueryScope scope;
  scope.all_runs = scope.pool = true;
  scope.where = {{"backend", "gloo"}};
  const Table table = named_query(runs.reader(), "latency", scope);
  const TableView rows(table);
  REQUIRE(rows.size() == 3);
  std::map<std::string, std::string> found;
  for (std::size_t i = 0; i < rows.size(); ++i)
    found[rows.text(i, "run_id") + " " + rows.text(i, "size_bytes")] =
        rows.text(i, "cadence") + " " + rows.text(i, "launches");
  // Each bears the newest run that timed it so.
  CHECK(found == std::map<std::string, std::string>{{"run-3 1024", "batched 6"},
                                                    {"run-2 1024", "isolated 12"},
                                                    {"run-3 65536", "batched 18"}});
  // A query of pairs takes neither for the other.
  scope.where = {{"size_bytes", "1KiB"}};
  scope.vary = "backend";
  const Table axis = named_query(runs.reader(), "axis", scope);
  REQUIRE(axis.rows.size() == 1);
  CHECK(TableView(axis).text(0, "cadence") == "batched");
  // Runs that agree have one figure of each cell and no column of runs.
  scope.where = {{"size_bytes", "64KiB"}};
  const Table alike = named_query(runs.reader(), "latency", scope);
  CHECK(alike.rows.size() == 3);
  CHECK(!column_index(alike, "run_id"));
}

TEST_CASE("show --diff gives no interval across cadences and says so", "[G-04]") {
  Timed runs;
  runs.add_run("run-1");
  runs.add_run("run-2");
  runs.isolate("run-1", "size_bytes = 1024");
  const auto text = render_run_diff(runs.reader(), "run-1", "run-2", OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("isolated | batched"));
  CHECK_THAT(text, ContainsSubstring("cadence differs in 3 of 6 cells, without an interval"));
  const auto document =
      nlohmann::json::parse(render_run_diff(runs.reader(), "run-1", "run-2", OutputFormat::json));
  for (const auto& cell : document["figures"])
    CHECK(cell["x A_low"].is_null() == (cell["size_bytes"] == 1024));
}
