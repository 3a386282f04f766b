#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/comparison_render.hpp"
#include "reports/render/render.hpp"
#include "tests/reports/compare/compared_runs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// As a run on these nodes stores it, or one on a machine of this name.
auto on(const std::vector<std::string>& nodes, int ranks = 2) {
  return [=](SyntheticPlan& plan) {
    std::string list;
    for (const auto& node : nodes) {
      if (!list.empty()) list += ",";
      list += R"({"name":")" + node + R"(","ranks":1})";
    }
    if (nodes.size() > 1)
      plan.container_json = R"({"engine":"none","cluster":{"start":"ssh","nodes":[)" + list + "]}}";
    plan.run.host_json = R"({"system":{"hostname":")" + nodes.front() + R"("}})";
    plan.groups.resize(1);
    std::erase_if(plan.cells,
                  [&](const CellInfo& cell) { return cell.group_id != plan.groups[0].id; });
    plan.groups[0].ranks = ranks;
  };
}

Value in(const Table& table, std::size_t row, const std::string& column) {
  return table.rows.at(row).at(column_index(table, column).value());
}

}  // namespace

TEST_CASE("runs on other machines or on more nodes are compared, and these are named", "[A-28]") {
  Runs runs;
  runs.add("run-1", 100, 6, on({"lab1"}));
  runs.add("run-2", 150, 6, on({"node1", "node2"}));
  const auto result = runs.compare("run-1", "run-2");
  REQUIRE(result.cells.size() == 2);
  CHECK(result.overall() == Verdict::slower);
  CHECK_THAT(result.cells[0].time_ratio.value, WithinRel(1.5, 0.01));
  CHECK(result.cells[0].time_ratio.interval);
  REQUIRE_FALSE(result.provenance.empty());
  CHECK(result.provenance[0].what == kNodes);
  CHECK(result.provenance[0].b == "2");
  const auto text = render_comparison(result, OutputFormat::text);
  CHECK_THAT(text, ContainsSubstring("on one machine: lab1"));
  CHECK_THAT(text, ContainsSubstring("on 2 nodes: node1, node2"));
  CHECK_THAT(comparison_json(result, 0), ContainsSubstring("\"node2\""));
}

TEST_CASE(
    "more ranks on more nodes are no comparison, and the error names the query that holds "
    "them against each other",
    "[A-28]") {
  Runs runs;
  runs.add("run-1", 100, 6, on({"node1", "node2"}, 2));
  runs.add("run-2", 150, 6, on({"node1", "node2", "node3", "node4"}, 4));
  CHECK_THROWS_WITH(runs.compare("run-1", "run-2"),
                    ContainsSubstring("ranks: A 2, B 4") &&
                        ContainsSubstring("A ran on 2 nodes: node1, node2, B on 4 nodes") &&
                        ContainsSubstring("`dynamiccl query node_scaling --db "));
}

TEST_CASE("times over nodes are held against the fewest nodes, alike ones alone", "[A-28]") {
  Runs runs;
  // Two ranks a node; then four ranks on two nodes as on one.
  runs.add("run-1", 100, 6, on({"node1"}, 2));
  runs.add("run-2", 200, 6, on({"node1", "node2"}, 4));
  runs.add("run-3", 400, 6, on({"node1", "node2", "node3", "node4"}, 8));
  runs.add("run-4", 160, 6, on({"node1"}, 4));
  runs.add("run-5", 320, 6, on({"a", "b", "c", "d"}, 4));
  runs.add("run-6", 100, 6, [](SyntheticPlan& plan) {
    on({"node1", "node2", "node3"}, 6)(plan);
    plan.run.protocol_json = R"({"warmup":7})";
  });
  const Table table = named_query(Reader(runs.folder.file("a.sqlite")), "node_scaling", {});
  REQUIRE(table.rows.size() == 12);  // two sizes
  const auto row_of = [&](const std::string& run) {
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      if (in(table, i, "run_id") == Value(run)) return i;
    FAIL("no row of " << run);
    return std::size_t{0};
  };
  const auto ratio = [&](const std::string& run) {
    return std::get<double>(in(table, row_of(run), "ratio"));
  };
  CHECK(in(table, row_of("run-1"), "base") == Value{});
  CHECK(in(table, row_of("run-1"), "ratio") == Value{});
  CHECK_THAT(ratio("run-2"), WithinRel(2.0, 0.01));
  CHECK_THAT(ratio("run-3"), WithinRel(4.0, 0.01));
  CHECK_THAT(plain_text(in(table, row_of("run-3"), "base")),
             ContainsSubstring("2 ranks on one machine: node1, run run-1"));
  // An all-reduce moves 2 (n - 1) / n: 1 of two ranks, 1.75 of eight.
  CHECK_THAT(std::get<double>(in(table, row_of("run-3"), "efficiency")), WithinRel(1.75 / 4, 0.01));
  const auto low = std::get<double>(in(table, row_of("run-3"), "efficiency_low"));
  const auto high = std::get<double>(in(table, row_of("run-3"), "efficiency_high"));
  CHECK(low <= 1.75 / 4 * 1.01);
  CHECK(high >= 1.75 / 4 * 0.99);
  CHECK(low < high);
  // As many ranks in all, where nothing has one rank a node on fewer nodes.
  CHECK_THAT(ratio("run-5"), WithinRel(2.0, 0.01));
  CHECK(in(table, row_of("run-5"), "machines") == Value("4 nodes: a, b, c, d"));
  CHECK(in(table, row_of("run-6"), "ratio") == Value{});
  CHECK_THAT(plain_text(in(table, row_of("run-6"), "note")), ContainsSubstring("warm-up 7"));
  QueryScope only;
  only.where = {{"nodes", "4"}};
  const Table four = named_query(Reader(runs.folder.file("a.sqlite")), "node_scaling", only);
  CHECK(four.rows.size() == 4);
  CHECK(in(four, 0, "ratio") != Value{});
}
