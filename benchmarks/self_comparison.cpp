// How often a machine compared with itself is called different: launches of one stored cell are
// dealt to two sides at random, a thousand times, and the sides are judged as `dynamiccl compare`
// judges runs. Real launches have the tails, modes and drift that simulated noise lacks.
//
//   dynamiccl run experiments/same_machine.toml --db results/same_machine.sqlite
//   build/release/self_comparison results/same_machine.sqlite [RUN] [BAND]
//
// Exit code 1 when a cell is called FASTER or SLOWER in more than 5 % of the deals at any number of
// launches, or when fewer than 90 % of the deals at 40 launches are SAME over all cells.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/error.hpp"
#include "core/statistics.hpp"
#include "core/units.hpp"
#include "core/verdict.hpp"
#include "db/reader.hpp"
#include "reports/answer.hpp"
#include "reports/figures.hpp"

using namespace dynamiccl;

namespace {

constexpr int kDeals = 1000;
constexpr int kMostLaunches = 40;

struct Tally {
  int different = 0;
  int same = 0;
  int deals = 0;
};

/// Two sides of `launches` each. Without putting back where there are enough; else each side is
/// drawn with putting back, independent of the other.
Tally deal(std::vector<double> medians, std::size_t launches, EquivalenceBand band,
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
    const auto verdict = judge(ratio_unpaired(b, a), band);
    tally.different += verdict == Verdict::faster || verdict == Verdict::slower ? 1 : 0;
    tally.same += verdict == Verdict::same ? 1 : 0;
    ++tally.deals;
  }
  return tally;
}

double spread_percent(const std::vector<double>& medians) {
  std::vector<double> logs;
  for (const double median_us : medians) logs.push_back(std::log(median_us));
  return 100 * standard_deviation(logs);
}

double percent(int part, int whole) { return whole == 0 ? 0 : 100.0 * part / whole; }

/// @returns whether the promise holds
bool report(const std::vector<CellFigure>& figures, EquivalenceBand band) {
  std::mt19937_64 random(1);
  bool never_too_often = true;
  Tally at_forty;
  fmt::print("{:<10} {:<12} {:>9} {:>8} {:>9}", "backend", "operation", "size", "launches",
             "spread");
  const std::vector<std::size_t> counts{5, 10, 20, kMostLaunches};
  for (const auto launches : counts) fmt::print("   L={:<2} false  SAME", launches);
  fmt::print("\n");
  for (const auto& figure : figures) {
    const auto medians = figure.medians_us();
    if (medians.size() < kMostLaunches) continue;
    fmt::print("{:<10} {:<12} {:>9} {:>8} {:>8.2f}%", figure.backend, figure.collective,
               format_bytes(Bytes(static_cast<std::uint64_t>(figure.size_bytes))), medians.size(),
               spread_percent(medians));
    for (const auto launches : counts) {
      const auto tally = deal(medians, launches, band, random);
      fmt::print("     {:5.1f}% {:5.1f}%", percent(tally.different, tally.deals),
                 percent(tally.same, tally.deals));
      never_too_often = never_too_often && tally.different <= 0.05 * tally.deals;
      if (launches != kMostLaunches) continue;
      at_forty.same += tally.same;
      at_forty.deals += tally.deals;
    }
    fmt::print("\n");
  }
  const bool mostly_same = at_forty.deals > 0 && at_forty.same >= 0.9 * at_forty.deals;
  fmt::print(
      "band {:.1f} %, {} deals each; false = FASTER or SLOWER; at {} launches {:.1f} % are SAME\n"
      "{}: at most 5 % false everywhere; {}: at least 90 % SAME at {} launches\n",
      100 * band.relative, kDeals, kMostLaunches, percent(at_forty.same, at_forty.deals),
      never_too_often ? "holds" : "FAILS", mostly_same ? "holds" : "FAILS", kMostLaunches);
  return never_too_often && mostly_same;
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
