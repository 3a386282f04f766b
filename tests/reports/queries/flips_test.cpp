#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "db/decision_log.hpp"
#include "reports/model/flip_points.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

constexpr std::uint64_t kKiB = 1024;

struct Ranks {
  const char* environment;
  const char* backend;
  const char* architecture;
  int ranks;
  const char* regime = "{}";
};

/// A run of these groups; a server pushes and pulls where a ring all-reduces.
class Grid {
 public:
  using TimeOfGroup = std::function<double(const Ranks&, std::uint64_t size, int block)>;

  Grid(std::vector<Ranks> of_groups, const std::vector<std::uint64_t>& sizes,
       const TimeOfGroup& time, int blocks = 4)
      : store(folder.file("a.sqlite")), groups(std::move(of_groups)) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < groups.size(); ++i) names.push_back("group " + std::to_string(i));
    plan = make_plan("run-1", names, {"allreduce"}, sizes);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      plan.groups[g].environment = groups[g].environment;
      plan.groups[g].backend = groups[g].backend;
      plan.groups[g].architecture = groups[g].architecture;
      plan.groups[g].ranks = groups[g].ranks;
      for (auto& cell : plan.cells)
        if (cell.group_id == plan.groups[g].id && plan.groups[g].architecture == "ps")
          cell.collective = "push_pull";
    }
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < blocks; ++block)
      for (std::size_t g = 0; g < groups.size(); ++g) launch(g, block, time);
    store.end_run("run-1", "complete");
  }

  [[nodiscard]] Table query(const char* name) const {
    return named_query(Reader(folder.file("a.sqlite")), name, {});
  }

  ScratchFolder folder;
  Store store;
  std::vector<Ranks> groups;
  SyntheticPlan plan;

 private:
  void launch(std::size_t g, int block, const TimeOfGroup& time) {
    const auto start = make_start(plan.groups[g].id, block);
    const auto row = store.begin_launch("run-1", start);
    auto end = make_end();
    end.regime_json = groups[g].regime;
    store.finish_launch(
        row, end,
        make_records(plan.cells, plan.groups[g].id, start.uuid, groups[g].ranks, 20,
                     [&](const CellInfo& cell, int, int) {
                       return time(groups[g], cell.size_bytes, block) *
                              (1 + 0.001 * static_cast<double>(
                                               (static_cast<std::size_t>(block) * 7 + 3 * g) % 5));
                     }));
  }
};

bool is_ring(const Ranks& ranks) { return std::string(ranks.architecture) == "ring"; }

/// The row along an axis; fails the test where there is not exactly one.
std::size_t row_along(const TableView& rows, const std::string& along) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows.text(i, "along") == along) found.push_back(i);
  INFO(along);
  REQUIRE(found.size() == 1);
  return found.front();
}

}  // namespace

TEST_CASE("a change of places next to a call of nothing is at the next size") {
  CHECK(equal_size({{0, 0.5}, {4, -0.5}, {1024, -1}}) == 4);
  CHECK(equal_size({{0, 0.5}, {16, 0.5}, {64, -0.5}}) == 32);
}

TEST_CASE("the size at which server and ring change places is told with what is sure on each side",
          "[G-18]") {
  const Grid run({{"bare-metal", "gloo", "ring", 2}, {"bare-metal", "gloo", "ps", 3}},
                 {kKiB, 64 * kKiB, 1024 * kKiB}, [](const Ranks& r, std::uint64_t size, int block) {
                   if (size == kKiB) return is_ring(r) ? 10.0 : 20.0;
                   if (size == 1024 * kKiB) return is_ring(r) ? 40.0 : 20.0;
                   return 15.0 + (is_ring(r) ? block : (block * 3) % 4);
                 });
  const Table table = run.query("flips");
  const TableView rows(table);
  REQUIRE(rows.size() == 1);  // one backend, environment and number of workers: no other axis
  const auto row = row_along(rows, "size");
  CHECK(rows.text(row, "factor") == "architecture");
  CHECK(rows.text(row, "a") == "ps");
  CHECK(rows.text(row, "b") == "ring");
  CHECK(rows.text(row, "finding") == "flips");
  CHECK(rows.text(row, "environment") == "bare-metal");
  CHECK(rows.integer(row, "workers") == 2);
  CHECK(rows.text(row, "before") == "1 KiB");
  CHECK(rows.text(row, "faster_before") == "ring");
  CHECK_THAT(*rows.real(row, "ratio_before"), WithinRel(0.5, 0.01));
  CHECK(*rows.real(row, "ratio_before_high") < 0.6);
  CHECK(rows.text(row, "after") == "1 MiB");
  CHECK(rows.text(row, "faster_after") == "ps");
  CHECK_THAT(*rows.real(row, "ratio_after"), WithinRel(2.0, 0.01));
  CHECK(rows.integer(row, "crossover_low_bytes") == 1024);
  CHECK(rows.integer(row, "crossover_high_bytes") == 1024 * 1024);
  CHECK(*rows.real(row, "crossover_bytes") > 1024);
  CHECK(*rows.real(row, "crossover_bytes") < 1024 * 1024);
  // The same by the query of one axis.
  QueryScope scope;
  scope.vary = "architecture";
  const Table crossover = named_query(Reader(run.folder.file("a.sqlite")), "crossover", scope);
  REQUIRE(crossover.rows.size() == 1);
  CHECK(TableView(crossover).text(0, "collective") == "exchange");
  CHECK(TableView(crossover).integer(0, "workers") == 2);
  CHECK(TableView(crossover).real(0, "crossover_bytes") == rows.real(row, "crossover_bytes"));
}

TEST_CASE("environments and workers at which they change places are told, and axes without any",
          "[G-18]") {
  const Grid run({{"bare-metal", "gloo", "ring", 2},
                  {"bare-metal", "gloo", "ps", 3},
                  {"cross-docker", "gloo", "ring", 2},
                  {"cross-docker", "gloo", "ps", 3},
                  {"bare-metal", "gloo", "ring", 4},
                  {"bare-metal", "gloo", "ps", 5}},
                 {kKiB, 64 * kKiB}, [](const Ranks& r, std::uint64_t, int) {
                   const bool apart = std::string(r.environment) == "cross-docker";
                   const bool many = r.ranks > 3;
                   return is_ring(r) == (apart || many) ? 20.0 : 10.0;
                 });
  const Table table = run.query("flips");
  const TableView rows(table);
  int environments = 0;
  int workers = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows.text(i, "along") == "environment") {
      ++environments;
      CHECK(rows.text(i, "before") == "bare-metal");
      CHECK(rows.text(i, "faster_before") == "ring");
      CHECK(rows.text(i, "after") == "cross-docker");
      CHECK(rows.text(i, "faster_after") == "ps");
      CHECK(rows.text(i, "environment").empty());
      CHECK_FALSE(rows.real(i, "crossover_bytes"));
    } else if (rows.text(i, "along") == "workers") {
      ++workers;
      CHECK(rows.text(i, "before") == "2");
      CHECK(rows.text(i, "after") == "4");
      CHECK(rows.text(i, "faster_after") == "ps");
    }
  }
  CHECK(environments == 2);  // one per size
  CHECK(workers == 2);
  const auto sizes = row_along(rows, "size");
  CHECK(rows.text(sizes, "finding") == "no flip: ps or ring at all 6 points");
  CHECK(rows.integer(sizes, "lines") == 3);
}

TEST_CASE("one launch shows a change of places and says that it is not sure", "[G-18]") {
  const Grid run(
      {{"bare-metal", "gloo", "ring", 2}, {"bare-metal", "gloo", "ps", 3}}, {kKiB, 64 * kKiB},
      [](const Ranks& r, std::uint64_t size, int) {
        return is_ring(r) == (size == kKiB) ? 10.0 : 20.0;
      },
      1);
  const Table table = run.query("flips");
  REQUIRE(table.rows.size() == 1);
  CHECK(TableView(table).text(0, "finding") == "flips, not sure: no interval");
  CHECK_FALSE(TableView(table).real(0, "ratio_before_low"));
}

TEST_CASE("methods that merge and methods that cut are held against each other along the batch",
          "[G-18][E-168]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  TrainingFigures figures;
  figures.role = "worker";
  SyntheticTraining training;
  training.methods = {{"mg-wfbp", R"({"model":"mlp","batch":"8"})"},
                      {"bytescheduler-a2a", R"({"model":"mlp","batch":"8","partition":"4096"})"},
                      {"mg-wfbp", R"({"model":"mlp","batch":"32"})"},
                      {"bytescheduler-a2a", R"({"model":"mlp","batch":"32","partition":"4096"})"},
                      {"bsp-a2a", R"({"model":"mlp","batch":"32"})"}};
  training.step_us = {100, 150, 300, 200, 250};
  store_training(store, training, figures, 4);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "flips", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 1);
  CHECK(rows.text(0, "factor") == "fusion or partition");
  CHECK(rows.text(0, "a") == "mg-wfbp");
  CHECK(rows.text(0, "b") == R"(bytescheduler-a2a {"partition":"4096"})");
  CHECK(rows.text(0, "along") == "batch");
  CHECK(rows.text(0, "before") == "8");
  CHECK(rows.text(0, "faster_before") == "mg-wfbp");
  CHECK(rows.text(0, "after") == "32");
  CHECK_THAT(rows.text(0, "faster_after"), ContainsSubstring("bytescheduler-a2a"));
  CHECK(rows.text(0, "model") == "mlp");
}

TEST_CASE("a library that is best in one place only flips there, and the axis says which is where",
          "[G-18][G-19][A-57]") {
  const char* near = R"({"ingredients":{"intra_link":"shm","inter_link":"tcp",
                                        "inter_tier":"virtual"}})";
  const char* far = R"({"ingredients":{"intra_link":"none","inter_link":"tcp",
                                       "inter_tier":"shaped-300Mbit/s"}})";
  const Grid run({{"bare-metal", "openmpi", "ring", 2, near},
                  {"bare-metal", "gloo", "ring", 2, near},
                  {"cross-docker", "openmpi", "ring", 2, far},
                  {"cross-docker", "gloo", "ring", 2, far}},
                 {kKiB, 64 * kKiB}, [](const Ranks& r, std::uint64_t size, int) {
                   const bool gloo = std::string(r.backend) == "gloo";
                   const bool apart = std::string(r.environment) == "cross-docker";
                   if (size == kKiB) return gloo ? 20.0 : 10.0;
                   return gloo == apart ? 10.0 : 20.0;
                 });
  const Table flips = run.query("flips");
  const TableView flip(flips);
  REQUIRE(flip.size() == 1);  // at 64 KiB, not at 1 KiB
  CHECK(flip.text(0, "factor") == "backend");
  CHECK(flip.integer(0, "lines") == 2);
  CHECK(flip.integer(0, "size_bytes") == 65536);
  CHECK(flip.text(0, "setting") == "ring");
  CHECK(flip.text(0, "before") == "bare-metal");
  CHECK(flip.text(0, "faster_before") == "openmpi");
  CHECK(flip.text(0, "after") == "cross-docker");
  CHECK(flip.text(0, "faster_after") == "gloo");
  QueryScope scope;
  scope.vary = "backend";
  const Table axis = named_query(Reader(run.folder.file("a.sqlite")), "axis", scope);
  const TableView winners(axis);
  REQUIRE(winners.size() == 4);
  for (std::size_t i = 0; i < winners.size(); ++i) {
    const bool gloo = winners.integer(i, "size_bytes") == 64 * kKiB &&
                      winners.text(i, "environment") == "cross-docker";
    CHECK(winners.text(i, "winner") == (gloo ? "gloo" : "openmpi"));
    CHECK(winners.text(i, "winner_is_sure") == "yes");
  }
}
