// How often a machine compared with itself is called different: launches of one stored cell are
// dealt to two sides at random, a thousand times, and the sides are judged as `dynamiccl compare`
// judges runs; where the run holds the environment twice (NAME and NAME-again), the two launches of
// a block are dealt to the sides, too, and judged as it judges environments. Real launches have the
// tails, modes and drift that simulated noise lacks. On an otherwise idle machine:
//
//   ./dynamiccl run experiments/same_machine.toml --db results/same_machine.sqlite
//   cmake --build --preset release --target self_comparison
//   build/release/self_comparison results/same_machine.sqlite [RUN] [BAND]
//
// Where processors are shared with other machines, launches of one cell differ by 4 to 15 % and
// nothing is surely the same; experiments/same_links.toml has cells whose time a link's shaper sets
// (Gloo: they differ by 0.4 and 1.0 %, and every deal of 40 launches is SAME).
//
// The bar is `runs`, the unpaired comparison, cell by cell: exit code 1 when of some cell more than
// 5 % of the deals at some number of launches are FASTER or SLOWER, or fewer than 90 % of the deals
// at 40 launches are SAME, or when no cell has 40 launches. The paired comparison is printed beside
// it with the same bar and decides nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/units.hpp"
#include "db/reader.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/render/answer.hpp"

using namespace dynamiccl;

namespace {

constexpr int kDeals = 1000;
constexpr std::size_t kMostLaunches = 40;
constexpr double kMostFalse = 0.05;
constexpr double kFewestSame = 0.9;

const std::vector<std::size_t> kCounts{5, 10, 20, kMostLaunches};

struct Tally {
  int different = 0;
  int same = 0;
  int deals = 0;

  void count(Verdict verdict) {
    different += verdict == Verdict::faster || verdict == Verdict::slower ? 1 : 0;
    same += verdict == Verdict::same ? 1 : 0;
    ++deals;
  }
  void add(const Tally& other) {
    different += other.different;
    same += other.same;
    deals += other.deals;
  }
};

double percent(int part, int whole) { return whole == 0 ? 0 : 100.0 * part / whole; }

/// Two sides of `launches` each. Without putting back where there are enough; else each side is
/// drawn with putting back, independent of the other.
Tally deal_launches(std::vector<double> medians, std::size_t launches, EquivalenceBand band,
                    std::mt19937_64& random) {
  Tally tally;
  std::uniform_int_distribution<std::size_t> any(0, medians.size() - 1);
  for (int i = 0; i < kDeals; ++i) {
    std::vector<double> a;
    std::vector<double> b;
    if (medians.size() >= 2 * launches) {
      std::shuffle(medians.begin(), medians.end(), random);
      const auto middle = medians.begin() + static_cast<std::ptrdiff_t>(launches);
      a.assign(medians.begin(), middle);
      b.assign(middle, middle + static_cast<std::ptrdiff_t>(launches));
    } else {
      for (std::size_t k = 0; k < launches; ++k) {
        a.push_back(medians[any(random)]);
        b.push_back(medians[any(random)]);
      }
    }
    tally.count(judge(ratio_unpaired(b, a), band));
  }
  return tally;
}

/// Blocks drawn at random; in each, a coin says which of its two launches is whose.
Tally deal_blocks(std::vector<std::pair<double, double>> blocks, std::size_t launches,
                  EquivalenceBand band, std::mt19937_64& random) {
  Tally tally;
  std::bernoulli_distribution coin(0.5);
  for (int i = 0; i < kDeals; ++i) {
    std::shuffle(blocks.begin(), blocks.end(), random);
    std::vector<double> a;
    std::vector<double> b;
    for (std::size_t k = 0; k < launches; ++k) {
      const bool swapped = coin(random);
      a.push_back(swapped ? blocks[k].second : blocks[k].first);
      b.push_back(swapped ? blocks[k].first : blocks[k].second);
    }
    tally.count(judge(ratio_paired(b, a), band));
  }
  return tally;
}

std::vector<std::pair<double, double>> common_blocks(const CellFigure& a, const CellFigure& b) {
  std::vector<std::pair<double, double>> blocks;
  for (const auto& one : a.launches) {
    for (const auto& other : b.launches) {
      if (one.block == other.block) blocks.emplace_back(one.median_us, other.median_us);
    }
  }
  return blocks;
}

double spread_percent(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  return 100 * standard_deviation(logs);
}

/// One way of dealing, cell by cell.
class Summary {
 public:
  explicit Summary(std::string title) : title_(std::move(title)) {
    fmt::print("{}\n{:<10} {:<12} {:>9} {:>8} {:>9}", title_, "backend", "operation", "size",
               "launches", "spread");
    for (const auto launches : kCounts) fmt::print("   L={:<2} false  SAME", launches);
    fmt::print("\n");
  }
  void begin_row(const CellFigure& figure, std::size_t launches, double spread) const {
    fmt::print("{:<10} {:<12} {:>9} {:>8} {:>8.2f}%", figure.backend, figure.collective,
               format_bytes(Bytes(static_cast<std::uint64_t>(figure.size_bytes))), launches,
               spread);
  }
  void add(std::size_t launches, const Tally& tally) {
    fmt::print("     {:5.1f}% {:5.1f}%", percent(tally.different, tally.deals),
               percent(tally.same, tally.deals));
    all_[launches].add(tally);
    const bool too_often = tally.different > kMostFalse * tally.deals;
    const bool too_seldom = launches == kMostLaunches && tally.same < kFewestSame * tally.deals;
    false_too_often_ += too_often ? 1 : 0;
    same_too_seldom_ += too_seldom ? 1 : 0;
    if (launches != kMostLaunches) {
      row_fails_ = row_fails_ || too_often;
      return;
    }
    ++cells_;
    fmt::print("{}\n", row_fails_ || too_often || too_seldom ? "  FAILS" : "");
    row_fails_ = false;
  }
  [[nodiscard]] bool holds() const {
    return cells_ > 0 && false_too_often_ == 0 && same_too_seldom_ == 0;
  }
  void conclude() const {
    if (cells_ == 0) {
      fmt::print("no cell has {} launches: nothing to deal\n\n", kMostLaunches);
      return;
    }
    for (const auto& [launches, tally] : all_)
      fmt::print("all cells, L={}: {:.1f}% false, {:.1f}% SAME\n", launches,
                 percent(tally.different, tally.deals), percent(tally.same, tally.deals));
    fmt::print(
        "{}: at most {:.0f} % false in each of {} cells at each number of launches ({} are above); "
        "at least {:.0f} % SAME in each at {} launches ({} are below)\n\n",
        holds() ? "holds" : "FAILS", 100 * kMostFalse, cells_, false_too_often_, 100 * kFewestSame,
        kMostLaunches, same_too_seldom_);
  }

 private:
  std::string title_;
  std::map<std::size_t, Tally> all_;
  int cells_ = 0;
  int false_too_often_ = 0;  ///< pairs of cell and number of launches
  int same_too_seldom_ = 0;  ///< cells
  bool row_fails_ = false;
};

Summary compare_as_runs(const std::vector<CellFigure>& figures, EquivalenceBand band) {
  std::mt19937_64 random(1);
  Summary summary("as runs are compared: unpaired");
  for (const auto& figure : figures) {
    const auto medians = figure.medians_us();
    if (medians.size() < kMostLaunches || figure.environment.ends_with("-again")) continue;
    summary.begin_row(figure, medians.size(), spread_percent(medians));
    for (const auto launches : kCounts)
      summary.add(launches, deal_launches(medians, launches, band, random));
  }
  summary.conclude();
  return summary;
}

void compare_as_environments(const std::vector<CellFigure>& figures, EquivalenceBand band) {
  std::mt19937_64 random(2);
  Summary summary("beside it, as environments are compared: paired by block; spread of the ratios");
  for (const auto& figure : figures) {
    for (const auto& again : figures) {
      if (again.environment != figure.environment + "-again" ||
          key_without(figure, "environment") != key_without(again, "environment"))
        continue;
      const auto blocks = common_blocks(figure, again);
      if (blocks.size() < kMostLaunches) continue;
      std::vector<double> ratios;
      for (const auto& [a, b] : blocks) ratios.push_back(b / a);
      summary.begin_row(figure, blocks.size(), spread_percent(ratios));
      for (const auto launches : kCounts)
        summary.add(launches, deal_blocks(blocks, launches, band, random));
    }
  }
  summary.conclude();
}

/// @returns whether the bar holds
bool report(const std::vector<CellFigure>& figures, EquivalenceBand band) {
  fmt::print("band {:.1f} %, {} deals per cell; false = FASTER or SLOWER\n\n", 100 * band.relative,
             kDeals);
  const bool holds = compare_as_runs(figures, band).holds();
  compare_as_environments(figures, band);
  fmt::print("the bar, runs compared unpaired: {}\n", holds ? "holds" : "FAILS");
  return holds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: self_comparison DATABASE [RUN] [BAND, as in 0.02]\n");
    return 2;
  }
  try {
    const Reader reader(argv[1]);
    const auto run = reader.resolve_run(argc > 2 ? argv[2] : "last");
    const EquivalenceBand band{argc > 3 ? std::stod(argv[3]) : EquivalenceBand{}.relative};
    return report(load_figures(reader, run_scope(reader, run)), band) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "self_comparison: {}\n", error.what());
    return 2;
  }
}
