#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"
#include "tests/db/synthetic.hpp"
#include "tests/reports/queries/trained_run.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// With what each query of training looks at.
TrainingFigures trained_figures() {
  TrainingFigures figures = usual_figures();
  figures.predicted_us = 90;
  figures.details["pieces"] = {{0, 256, 100}};
  figures.details["memory"] = {{"unit_bytes", 1024}, {"held_bytes", 2048}, {"limit_bytes", 4096}};
  figures.details["compression"] = {{"nominal_bytes", 1024}, {"message_bytes", 512}};
  return figures;
}

/// Groups and cells that differ in their settings alone: all that was measured is equal.
class EqualRun {
 public:
  explicit EqualRun(bool training = false) : store_(folder_.file("a.sqlite")) {
    auto plan = make_plan("run-1", {"a", "b"}, {training ? "training" : "allreduce"}, {1024, 2048});
    plan.groups[1].environment = plan.groups[0].environment;
    plan.groups[1].profile_json = plan.groups[0].profile_json;
    for (std::size_t i = 0; i < 2; ++i)
      plan.groups[i].knobs_json = i == 0 ? R"({"eager":"1KiB"})" : R"({"eager":"2KiB"})";
    for (std::size_t i = 0; i < plan.cells.size(); ++i) {
      plan.cells[i].size_bytes = 1024;
      plan.cells[i].knobs_json = i % 2 == 0 ? R"({"segment":"1KiB"})" : R"({"segment":"2KiB"})";
      if (!training) continue;
      plan.cells[i].algorithm = "bsp-a2a";
      plan.cells[i].knobs_json = i % 2 == 0 ? R"({"model":"mlp","batch":"8","compression":"topk"})"
                                            : R"({"model":"mlp","batch":"8"})";
    }
    store_.begin_run(plan.run, plan.groups, plan.cells);
    for (const auto& group : plan.groups) {
      const auto end_launch = [&](int block, const LaunchEnd& end, auto records) {
        const auto start = make_start(group.id, block);
        store_.finish_launch(store_.begin_launch("run-1", start), end, records);
      };
      const auto start = make_start(group.id, 0);
      auto records = make_records(plan.cells, group.id, start.uuid, group.ranks, 20,
                                  [](const CellInfo&, int, int) { return 10.0; });
      for (std::size_t rank = 0; rank < records.size(); ++rank) {
        ClockRecord clock;
        clock.rank = static_cast<int>(rank);
        clock.shared = true;
        records[rank].records.insert(records[rank].records.begin() + 1, clock);
        if (!training) continue;
        for (auto& record : records[rank].records)
          if (auto* cell = std::get_if<CellRecord>(&record)) cell->training = trained_figures();
      }
      end_launch(0, make_end(), records);
      end_launch(1, make_end(LaunchStatus::failed, "it broke"), std::vector<RecordFile>{});
    }
    store_.end_run("run-1", "complete");
  }

  [[nodiscard]] Reader reader() const { return Reader(folder_.file("a.sqlite")); }

 private:
  ScratchFolder folder_;
  Store store_;
};

std::string text_of_row(const std::vector<Value>& row) {
  std::string text;
  for (const auto& value : row) text += plain_text(value) + "|";
  return text;
}

void check_rows(const EqualRun& run, std::size_t least) {
  const Reader reader = run.reader();
  std::size_t with_rows = 0;
  for (const auto& query : all_queries()) {
    INFO(query.name);
    const Table table = named_query(reader, query.name, {});
    with_rows += table.rows.size() > 1 ? 1 : 0;
    std::set<std::string> seen;
    for (const auto& row : table.rows) {
      INFO(text_of_row(row));
      CHECK(seen.insert(text_of_row(row)).second);
    }
  }
  CHECK(with_rows > least);
}

}  // namespace

TEST_CASE("no query has two rows that nothing tells apart", "[G-01]") {
  check_rows(EqualRun(), 12);
}

TEST_CASE("no query of training has two rows that nothing tells apart", "[G-01]") {
  check_rows(EqualRun(true), 20);
}

TEST_CASE("no query's table has two columns of one title", "[G-01]") {
  for (const auto& query : all_queries()) {
    INFO(query.name);
    // Two rows that differ in all columns: none is left out.
    Table table = empty_table(query.columns);
    for (const double value : {1.0, 2.0})
      table.rows.emplace_back(table.columns.size(), Value(value));
    std::set<std::string> titles;
    for (const auto& title : humanise(table, columns_of(query.name, table)).columns) {
      INFO(title);
      CHECK(titles.insert(title.substr(0, title.find(" [interval]"))).second);
    }
  }
}

TEST_CASE("columns whose titles would be equal have their names", "[G-01]") {
  const Table table{{"send", "send_us", "copy_us"}, {{1.0, 2.0, 3.0}}};
  const Columns columns =
      describe(table.columns, parse_columns("send | integer | how many\nsend_us | us, real | time\n"
                                            "copy_us | us, real | time",
                                            "test"));
  CHECK(humanise(table, columns).columns == std::vector<std::string>{"send", "send_us", "copy"});
}

TEST_CASE("JSON, which keeps one value of a name, is refused of two columns of one", "[G-01]") {
  const EqualRun run;
  const Table table = any_query(run.reader(), "SELECT 1 AS a, 2 AS a", {});
  CHECK_THROWS_WITH(render_table(table, OutputFormat::json),
                    ContainsSubstring("two columns are called \"a\"") && ContainsSubstring("AS"));
  CHECK(render_table(table, OutputFormat::csv) == "a,a\r\n1,2\r\n");
}
