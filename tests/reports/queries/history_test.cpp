#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <random>

#include "core/vocabulary/splitmix64.hpp"
#include "reports/model/change_points.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinRel;

namespace {

/// The energy distance of both sides of a cut, as E-divisive has it (Matteson and James, Journal of
/// the American Statistical Association 109, 2014), at its largest.
std::pair<std::size_t, double> energy_cut(const std::vector<double>& x) {
  std::pair<std::size_t, double> best{0, 0};
  const auto mean_apart = [&](std::size_t b1, std::size_t e1, std::size_t b2, std::size_t e2) {
    double sum = 0;
    double pairs = 0;
    for (std::size_t i = b1; i < e1; ++i)
      for (std::size_t j = b2; j < e2; ++j)
        if (i != j) {
          sum += std::fabs(x[i] - x[j]);
          ++pairs;
        }
    return sum / pairs;
  };
  for (std::size_t cut = kLeastStretch; cut + kLeastStretch <= x.size(); ++cut) {
    const auto m = static_cast<double>(cut);
    const auto n = static_cast<double>(x.size() - cut);
    const double energy = 2 * mean_apart(0, cut, cut, x.size()) - mean_apart(0, cut, 0, cut) -
                          mean_apart(cut, x.size(), cut, x.size());
    if (m * n / (m + n) * energy > best.second) best = {cut, m * n / (m + n) * energy};
  }
  return best;
}

/// E-divisive's first change; 0 = none at 1 in 100.
std::size_t energy_change(const std::vector<double>& times) {
  std::vector<double> x;
  for (const double time : times) x.push_back(std::log(time));
  const auto [place, energy] = energy_cut(x);
  std::uint64_t seed = 1;
  int as_good = 1;
  for (int order = 0; order < 199; ++order) {
    for (std::size_t i = x.size(); i > 1; --i) std::swap(x[i - 1], x[splitmix64_next(seed) % i]);
    as_good += energy_cut(x).second >= energy ? 1 : 0;
  }
  return as_good / 200.0 <= 0.01 ? place : 0;
}

std::vector<double> series(std::mt19937_64& random, std::size_t change, double factor) {
  std::normal_distribution<double> noise(0, 0.05);
  std::vector<double> times;
  for (std::size_t i = 0; i < 24; ++i)
    times.push_back(100 * (i >= change ? factor : 1) * std::exp(noise(random)));
  return times;
}

bool near(std::size_t place, std::size_t planted) {
  return place != 0 && place + 2 >= planted && place <= planted + 2;
}

}  // namespace

TEST_CASE("changes of a series are found as often as by E-divisive, with no more false alarms") {
  std::mt19937_64 random(11);
  int ours = 0;
  int theirs = 0;
  int false_alarms = 0;
  for (int i = 0; i < 50; ++i) {
    const std::size_t planted = 5 + static_cast<std::size_t>(i) % 15;
    const auto times = series(random, planted, 1.1);
    const auto points = change_points(times);
    ours += std::ranges::any_of(points, [&](auto place) { return near(place, planted); }) ? 1 : 0;
    theirs += near(energy_change(times), planted) ? 1 : 0;
    false_alarms += change_points(series(random, 24, 1)).empty() ? 0 : 1;
  }
  INFO(ours << " of 50 found, by E-divisive " << theirs);
  CHECK(ours >= theirs);
  CHECK(ours >= 30);
  CHECK(false_alarms <= 2);
}

TEST_CASE("a series too short for a change has none, and one that steps twice has two") {
  CHECK(change_points({}).empty());
  CHECK(change_points({1, 1, 1, 9, 9}).empty());
  std::vector<double> times;
  for (int i = 0; i < 30; ++i)
    times.push_back((i < 10 ? 100 : i < 20 ? 150 : 90) * (1 + 0.01 * (i % 3)));
  CHECK(change_points(times) == std::vector<std::size_t>{10, 20});
}

TEST_CASE("the history of a cell has all runs in their order and the run at which it changed") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  for (int run = 0; run < 12; ++run) {
    const auto plan =
        make_plan("run-" + std::to_string(run), {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    for (int block = 0; block < 3; ++block)
      store_launch(store, plan, plan.groups[0], block, [&](const CellInfo&, int, int) {
        return (run < 7 ? 100.0 : 140.0) * (1 + 0.01 * (run % 3) + 0.001 * block);
      });
    store.end_run(plan.run.id, "complete");
  }
  const Table table = named_query(Reader(folder.file("a.sqlite")), "history", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(rows.integer(i, "stretch") == (i < 7 ? 1 : 2));
    CHECK(rows.text(i, "verdict") == (i == 7 ? "SLOWER" : ""));
  }
  CHECK(rows.text(7, "run_id") == "run-7");
  CHECK_THAT(*rows.real(7, "change"), WithinRel(1.4, 0.02));
}
