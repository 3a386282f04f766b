// Settings chosen beside a neighbour against those chosen without one, from planted launches.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>

#include "reports/model/table_view.hpp"
#include "reports/queries/no_rows.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// What ring and tree take on even and on odd launches.
struct Planted {
  double ring_even, tree_even, ring_odd, tree_odd;
};

/// A run of one all-reduce by ring and by tree, alone ("none") and beside each neighbour.
class Swept {
 public:
  explicit Swept(const std::map<std::string, Planted>& neighbours, int block_step = 1) {
    std::vector<std::string> names;
    for (const auto& [name, times] : neighbours) names.push_back(name);
    SyntheticPlan plan = make_plan("run-1", names, {"allreduce"}, {1024, 2048});
    for (std::size_t g = 0; g < names.size(); ++g) {
      plan.groups[g].environment = "bare-metal";
      if (names[g] != "none")
        plan.groups[g].knobs_json = R"({"env.DYNAMICCL_NEIGHBOUR":")" + names[g] + R"("})";
    }
    for (CellInfo& cell : plan.cells) {
      cell.algorithm = cell.size_bytes == 1024 ? "ring" : "tree";
      cell.size_bytes = 1024;
    }
    store_.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 8; block += block_step)
      for (std::size_t g = 0; g < names.size(); ++g)
        store_launch(store_, plan, plan.groups[g], block, [&](const CellInfo& cell, int, int) {
          const Planted& times = neighbours.at(names[g]);
          const double us = cell.algorithm == "ring"
                                ? (block % 2 == 0 ? times.ring_even : times.ring_odd)
                                : (block % 2 == 0 ? times.tree_even : times.tree_odd);
          return us * (1 + 0.001 * (block / 2 % 3));
        });
    store_.end_run("run-1", "complete");
  }

  [[nodiscard]] Table query() const {
    return named_query(Reader(folder_.file("a.sqlite")), "beside_neighbour", {});
  }
  [[nodiscard]] std::string why_none() const {
    const Reader reader(folder_.file("a.sqlite"));
    return why_no_rows(reader, query_named("beside_neighbour"), {});
  }

 private:
  ScratchFolder folder_;
  Store store_{folder_.file("a.sqlite")};
};

double number(const TableView& rows, std::size_t row, const char* column) {
  return std::stod(rows.text(row, column));
}

}  // namespace

TEST_CASE("what is chosen beside a neighbour is judged on launches that chose nothing") {
  // Odd launches would choose otherwise, alone and beside: they must not be asked.
  const Swept run({{"none", {10, 20, 20, 5}}, {"compute", {40, 30, 44, 88}}});
  const Table table = run.query();
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "neighbour") == "compute");
  CHECK(rows.integer(0, "settings") == 2);
  CHECK(rows.text(0, "blind_setting") == "ring");
  CHECK(rows.text(0, "own_setting") == "tree");
  CHECK_THAT(number(rows, 0, "blind_us"), WithinRel(44, 0.01));
  CHECK_THAT(number(rows, 0, "own_us"), WithinRel(88, 0.01));
  CHECK_THAT(number(rows, 0, "ratio"), WithinRel(2, 0.01));
  CHECK(rows.text(0, "verdict") == "SLOWER");
}

TEST_CASE("each neighbour has a row of its own, and the same choice twice has no verdict") {
  const Swept run(
      {{"none", {10, 20, 10, 20}}, {"compute", {40, 30, 40, 30}}, {"link", {15, 25, 15, 25}}});
  const Table table = run.query();
  const TableView rows(table);
  REQUIRE(rows.size() == 2);
  CHECK(rows.text(0, "neighbour") == "compute");
  CHECK_THAT(number(rows, 0, "ratio"), WithinRel(0.75, 0.01));
  CHECK(rows.text(0, "verdict") == "FASTER");
  CHECK(rows.text(1, "neighbour") == "link");
  CHECK(rows.text(1, "blind_setting") == "ring");
  CHECK(rows.text(1, "own_setting") == "ring");
  CHECK(number(rows, 1, "ratio") == 1);
  CHECK(rows.text(1, "verdict").empty());
}

TEST_CASE("without launches that chose nothing there is no row") {
  const std::map<std::string, Planted> times{{"none", {10, 20, 10, 20}},
                                             {"compute", {40, 30, 40, 30}}};
  CHECK(Swept(times, 2).query().rows.empty());
  // Who sees none is told of that.
  CHECK_THAT(Swept(times, 2).why_none(), ContainsSubstring("in odd ones, which judge"));
  CHECK(Swept(times).query().rows.size() == 1);
  // Nor where nothing was measured alone.
  CHECK(Swept({{"compute", {40, 30, 40, 30}}}).query().rows.empty());
}
