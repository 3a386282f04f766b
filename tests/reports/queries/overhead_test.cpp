#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/reports/compare/compared_runs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// One run of both environments; times by block.
Table overhead_of(const std::vector<double>& bare_metal, const std::vector<double>& docker) {
  Runs runs;
  runs.add("run-1", static_cast<int>(bare_metal.size()), [&](const GroupInfo& group, int block) {
    const auto& times = group.environment == "bare-metal" ? bare_metal : docker;
    return times.at(static_cast<std::size_t>(block));
  });
  return named_query(Reader(runs.folder.file("a.sqlite")), "overhead", {});
}

Table choose(const std::string& query, const std::string& column, const std::string& value) {
  Runs runs;
  runs.add("run-1", 3, [](const GroupInfo&, int) { return 10.0; });
  QueryScope scope;
  scope.where = {{column, value}};
  return named_query(Reader(runs.folder.file("a.sqlite")), query, scope);
}

}  // namespace

TEST_CASE("an environment that is faster has a difference below zero", "[A-21]") {
  const Table faster = overhead_of({20, 20.2, 20.1}, {10, 10.1, 10.05});
  CHECK_THAT(*TableView(faster).real(0, "difference_percent"), WithinRel(-100.0, 1e-9));
  CHECK(TableView(faster).text(0, "verdict") == "FASTER");
  const Table slower = overhead_of({10, 10.1, 10.05}, {20, 20.2, 20.1});
  CHECK_THAT(*TableView(slower).real(0, "difference_percent"), WithinRel(100.0, 1e-9));
  CHECK(TableView(slower).text(0, "note").empty());
  CHECK_THAT(query_named("overhead").row,
             ContainsSubstring("divided by the faster time, above 0 where bare metal is the "
                               "faster"));
}

TEST_CASE("overhead tells where the ratio and the two medians point to different sides") {
  // Docker takes 6 % more in six of seven blocks; the blocks themselves are of two kinds.
  const Table table = overhead_of({10, 10, 10, 20, 20, 20, 20}, {10.6, 10.6, 10.6, 15, 21, 21, 21});
  const TableView row(table);
  CHECK(*row.real(0, "median_us") < *row.real(0, "bare_metal_us"));
  CHECK(*row.real(0, "ratio") > 1.02);
  CHECK(row.text(0, "note") == "the medians alone have ratio 0.750");
}

TEST_CASE("--where takes true and false, and refuses what a column cannot hold", "[A-56]") {
  for (const char* query : {"latency", "overhead", "coverage"}) {
    CAPTURE(query);
    CHECK(!choose(query, "in_place", "false").rows.empty());
    CHECK(choose(query, "in_place", "true").rows.empty());
    CHECK(!choose(query, "ranks", "2").rows.empty());
    CHECK_THROWS_WITH(choose(query, "in_place", "yse"),
                      ContainsSubstring("in_place=yse: is either true"));
    for (const char* ranks : {"two", "2x", "0", ""})
      CHECK_THROWS_WITH(choose(query, "ranks", ranks),
                        ContainsSubstring("expected a whole number of processes"));
  }
}
