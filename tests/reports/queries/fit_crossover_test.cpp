#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

/// Bare metal starts quickly and moves slowly, cross-docker the other way round: they meet at
/// 40 us / 0.5 ns = 80,000 bytes. Singularity changes its protocol at 64 KiB.
double planted(const std::string& environment, std::uint64_t size_bytes, int block) {
  const auto m = static_cast<double>(size_bytes);
  const double little = 1 + 0.002 * (block % 3 - 1);
  if (environment == "unsteady") {  // surely slower at the smallest size, anything at the others
    const double factor = size_bytes == 1024 ? 1.3 : block % 2 == 0 ? 0.8 : 1.5;
    return factor * planted("bare-metal", size_bytes, block);
  }
  if (environment == "slow") return 1.3 * planted("bare-metal", size_bytes, block);
  if (environment == "bare-metal") return (10 + 1e-3 * m) * little;
  if (environment == "cross-docker") return (50 + 5e-4 * m) * little;
  return (m < 65536 ? 12 + 1e-4 * m : 400 + 1.2e-3 * m) * little;
}

const std::vector<std::string> kThree{"bare-metal", "cross-docker", "singularity"};

Table query(const std::string& name, int launches, const std::string& vary = "environment",
            const std::vector<std::string>& environments = kThree) {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 1024; size <= (1U << 24); size *= 4) sizes.push_back(size);
  auto plan = make_plan("run-1", environments, {"allreduce"}, sizes);
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < launches; ++block) {
    for (const auto& group : plan.groups) {
      store_launch(store, plan, group, block, [&](const CellInfo& cell, int, int) {
        return planted(group.environment, cell.size_bytes, block);
      });
    }
  }
  store.end_run("run-1", "complete");
  QueryScope scope;
  scope.vary = vary;
  return named_query(Reader(folder.file("a.sqlite")), name, scope);
}

std::size_t find(const TableView& view, const std::string& column, const std::string& value) {
  for (std::size_t i = 0; i < view.size(); ++i) {
    if (view.text(i, column) == value) return i;
  }
  FAIL("no row with " << column << " " << value);
  return 0;
}

/// The one row of a fit to launches whose lines meet size 0 at the times given.
Table fit_of(const std::vector<double>& alphas) {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 16384, 262144});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (std::size_t block = 0; block < alphas.size(); ++block) {
    store_launch(store, plan, plan.groups[0], static_cast<int>(block),
                 [&](const CellInfo& cell, int, int) {
                   return alphas[block] + 1e-3 * static_cast<double>(cell.size_bytes);
                 });
  }
  store.end_run("run-1", "complete");
  return named_query(Reader(folder.file("a.sqlite")), "fit", {});
}

}  // namespace

TEST_CASE("the fit gives back start-up time and bandwidth, with intervals from the blocks",
          "[A-23][E-196]") {
  const Table table = query("fit", 6);
  const TableView view(table);
  const auto bare = find(view, "environment", "bare-metal");
  CHECK(view.text(bare, "model") == "one line");
  CHECK_THAT(*view.real(bare, "alpha_us"), WithinRel(10.0, 0.01));
  CHECK_THAT(*view.real(bare, "bandwidth_bytes_per_s"), WithinRel(1e9, 0.01));
  CHECK(*view.real(bare, "alpha_low_us") < 10);
  CHECK(*view.real(bare, "alpha_high_us") > 10);
  CHECK(*view.real(bare, "bandwidth_low_bytes_per_s") < 1e9);
  CHECK(*view.real(bare, "bandwidth_high_bytes_per_s") > 1e9);
  CHECK(*view.real(bare, "error_percent") < 0.5);
  CHECK(view.integer(bare, "sizes") == 8);
  CHECK(view.integer(bare, "blocks") == 6);
}

TEST_CASE("a change of protocol gives a piece of its own and the single line's larger error") {
  const Table table = query("fit", 3);
  const TableView view(table);
  const auto first = find(view, "environment", "singularity");
  CHECK(view.text(first, "model") == "one line");
  CHECK(*view.real(first, "error_percent") > 20);
  REQUIRE(first + 2 < view.size());
  CHECK(view.text(first + 1, "model") == "piece 1 of 2");
  CHECK(view.integer(first + 2, "from_bytes") == 65536);
  CHECK_THAT(*view.real(first + 2, "alpha_us"), WithinRel(400.0, 0.02));
  CHECK(*view.real(first + 2, "error_percent") < 1);
}

TEST_CASE("a line of two sizes whose start-up time was cut off tells by how much it misses them") {
  const auto error_of = [](double small_us, double large_us) {
    const ScratchFolder folder;
    Store store(folder.file("a.sqlite"));
    const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 16384});
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 3; ++block)
      store_launch(store, plan, plan.groups[0], block, [&](const CellInfo& cell, int, int) {
        return cell.size_bytes == 1024 ? small_us : large_us;
      });
    store.end_run("run-1", "complete");
    const Table table = named_query(Reader(folder.file("a.sqlite")), "fit", {});
    return TableView(table).real(0, "error_percent");
  };
  CHECK_FALSE(error_of(10, 40));
  CHECK(error_of(10, 320).value_or(0) > 20);  // steeper than from 0: alpha is 0
  CHECK(error_of(10, 5).value_or(0) > 20);    // falling: level
}

TEST_CASE("a single slow block neither moves the fit nor leaves it outside its interval") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 16384, 262144});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 8; ++block) {
    store_launch(store, plan, plan.groups[0], block, [&](const CellInfo& cell, int, int) {
      return (block == 3 ? 20.0 : 1.0) * planted("bare-metal", cell.size_bytes, block);
    });
  }
  store.end_run("run-1", "complete");
  const Table table = named_query(Reader(folder.file("a.sqlite")), "fit", {});
  const TableView view(table);
  CHECK_THAT(*view.real(0, "alpha_us"), WithinRel(10.0, 0.01));
  CHECK(*view.real(0, "alpha_low_us") <= *view.real(0, "alpha_us"));
  CHECK(*view.real(0, "alpha_low_us") > 9);
  CHECK(*view.real(0, "bandwidth_high_bytes_per_s") >= *view.real(0, "bandwidth_bytes_per_s"));
}

TEST_CASE("launches of two regimes have a line each") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 16384, 262144});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 6; ++block) {
    const bool slow = block % 2 == 1;
    const auto start = make_start(plan.groups[0].id, block);
    const auto row = store.begin_launch("run-1", start);
    auto end = make_end();
    if (slow) {
      end.regime_id = "fedcba9876543210";
      end.regime_name = "container-bridge";
    }
    store.finish_launch(row, end,
                        make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                                     [&](const CellInfo& cell, int, int) {
                                       return (slow ? 5 : 1) *
                                              planted("bare-metal", cell.size_bytes, 0);
                                     }));
  }
  store.end_run("run-1", "complete");
  const Table table = named_query(Reader(folder.file("a.sqlite")), "fit", {});
  const TableView view(table);
  REQUIRE(view.size() == 2);
  const auto bridge = find(view, "regime", "container-bridge");
  const auto shared = find(view, "regime", "host-shm");
  CHECK_THAT(*view.real(shared, "alpha_us"), WithinRel(9.98, 0.001));
  CHECK_THAT(*view.real(bridge, "alpha_us"), WithinRel(5 * 9.98, 0.001));
  CHECK(view.integer(bridge, "blocks") == 3);
}

TEST_CASE("a start-up time that was cut off at zero has no interval of width zero", "[A-23]") {
  // All blocks' lines end below zero: nothing is known of the start-up but that it is short.
  const Table below = fit_of({-0.30, -0.31, -0.32, -0.30, -0.31, -0.33});
  const TableView cut(below);
  CHECK(cut.real(0, "alpha_us") == 0.0);
  CHECK_FALSE(cut.real(0, "alpha_low_us"));
  CHECK_FALSE(cut.real(0, "alpha_high_us"));
  CHECK(cut.real(0, "bandwidth_low_bytes_per_s"));
  // So far apart that a start-up above zero is possible: the end above is the launches' own.
  const Table about = fit_of({-0.30, -0.01, -0.02});
  const TableView wide(about);
  CHECK(wide.real(0, "alpha_us") == 0.0);
  CHECK(wide.real(0, "alpha_low_us") == 0.0);
  // Mean -0.11, standard deviation 0.1646: up to -0.11 + 4.3027 * 0.1646 / sqrt(3).
  CHECK_THAT(*wide.real(0, "alpha_high_us"), WithinRel(0.2990, 0.001));
}

TEST_CASE("two launches have a fit without interval") {
  const Table table = query("fit", 2);
  const TableView view(table);
  CHECK_FALSE(view.real(0, "alpha_low_us"));
  CHECK(view.real(0, "alpha_us"));
}

TEST_CASE("environments cross where the ratio is one, between the sizes that are sure", "[G-04]") {
  const Table table = query("crossover", 6);
  const TableView view(table);
  const auto row = find(view, "b", "cross-docker");
  CHECK(view.text(row, "a") == "bare-metal");
  CHECK(view.text(row, "faster_below") == "bare-metal");
  CHECK(view.text(row, "faster_above") == "cross-docker");
  CHECK(view.integer(row, "crossover_low_bytes") == 65536);
  CHECK(view.integer(row, "crossover_high_bytes") == 262144);
  CHECK_THAT(*view.real(row, "crossover_bytes"), WithinRel(80000.0, 0.15));
  CHECK(view.text(row, "is_sure") == "yes");
}

TEST_CASE("pairs that never cross say who is faster throughout") {
  const Table table = query("crossover", 6, "environment", {"bare-metal", "slow"});
  const TableView view(table);
  REQUIRE(view.size() == 1);
  CHECK(view.text(0, "faster_below") == "bare-metal");
  CHECK(view.text(0, "faster_above") == "bare-metal");
  CHECK_FALSE(view.real(0, "crossover_bytes"));
  CHECK(view.text(0, "is_sure") == "yes");
  CHECK(query("crossover", 6, "backend").rows.empty());
}

TEST_CASE("one sure size does not make it sure that a side wins at all sizes", "[G-04]") {
  const Table table = query("crossover", 6, "environment", {"bare-metal", "unsteady"});
  const TableView view(table);
  REQUIRE(view.size() == 1);
  CHECK(view.text(0, "faster_below") == "bare-metal");
  CHECK(view.text(0, "faster_above") == "bare-metal");
  CHECK(view.text(0, "is_sure") == "no");
}

TEST_CASE("without intervals a crossover is told, and that it is not sure") {
  const Table table = query("crossover", 1);
  const TableView view(table);
  const auto row = find(view, "b", "cross-docker");
  CHECK(view.text(row, "is_sure") == "no");
  CHECK(view.text(row, "faster_above") == "cross-docker");
  CHECK_THROWS_WITH(query("crossover", 1, "colour"), ContainsSubstring("unknown axis"));
}
