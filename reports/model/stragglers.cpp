#include "reports/model/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

/// One-sided 5 % of the normal distribution.
constexpr double kBeyondChance = 1.645;
/// A report is to take seconds, and every sample has to be read.
constexpr std::int64_t kMostSamplesOfNote = 200'000;

using Measure = PaceMeasure;
constexpr std::array kMeasures{Measure::own_work, Measure::arrival};

/// One rank's measured iterations of one cell in one launch, microseconds.
struct RankSamples {
  std::int64_t rank = 0;
  std::vector<double> start;  ///< on the clock of rank 0; empty when clocks were not compared
  std::vector<double> span;   ///< of a sample: all calls of its batch
  std::vector<double> own;    ///< copies, sums and computing; empty when none was timed
  double clock_error = 0;
};

struct CellSamples {
  bool rooted = false;   ///< rank 0 does other work than the others
  bool chained = false;  ///< no barrier between its iterations
  std::vector<RankSamples> ranks;
};

/// What one launch says of one rank.
struct LaunchPace {
  std::vector<double> cell_ratios;
  std::int64_t slow = 0;
  std::int64_t iterations = 0;
  /// Sign test: n iterations that are slow by the toss of a coin have a spread of sqrt(n) / 2.
  [[nodiscard]] bool is_slow() const {
    const auto n = static_cast<double>(iterations);
    return static_cast<double>(slow) - kSlowLaunchShare * n > kBeyondChance * std::sqrt(n) / 2;
  }
};
using LaunchPaces = std::map<std::pair<Measure, std::int64_t>, LaunchPace>;

struct Clock {
  double zero_us = 0;
  double offset_us = 0;
  double error_us = 0;
};

/// By rank; empty when a rank's clock was not compared with rank 0's.
std::map<std::int64_t, Clock> clocks_of(const Reader& reader, std::int64_t launch) {
  const Table table = reader.query(
      "SELECT rank, clock_ns, clock_shared, clock_offset_us, clock_error_us, clock_end_offset_us, "
      "clock_end_error_us FROM launch_rank WHERE launch_id = ?1",
      {launch});
  const TableView rows(table);
  std::map<std::int64_t, Clock> clocks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto rank = rows.integer(i, "rank");
    const auto zero = rows.real(i, "clock_ns");
    const auto shared = rows.real(i, "clock_shared");
    if (!zero || (rank > 0 && !shared)) return {};
    Clock clock{*zero / 1e3, 0, 0};
    if (rank > 0 && *shared == 0) {
      const double begin = rows.real(i, "clock_offset_us").value_or(0);
      const double end = rows.real(i, "clock_end_offset_us").value_or(begin);
      const double begin_error = rows.real(i, "clock_error_us").value_or(0);
      clock.offset_us = (begin + end) / 2;
      // Between the two comparisons the clock was anywhere between the two offsets.
      clock.error_us =
          std::max(begin_error, rows.real(i, "clock_end_error_us").value_or(begin_error)) +
          std::fabs(end - begin) / 2;
    }
    clocks[rank] = clock;
  }
  return clocks;
}

bool is_rooted(const std::string& architecture, const std::string& collective) {
  constexpr std::array kRooted{"broadcast", "reduce", "gather", "sendrecv"};
  return architecture == "ps" || std::any_of(kRooted.begin(), kRooted.end(),
                                             [&](const char* name) { return collective == name; });
}

double number(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::nan("");
}

/// Cells of a launch with the samples of each rank, in the order of iterations; those without
/// samples, as of imported tables, are left out: a statement for each takes most of the time.
std::vector<CellSamples> cells_of(const Reader& reader, std::int64_t launch,
                                  const std::string& architecture) {
  const auto clocks = clocks_of(reader, launch);
  const Table what = reader.query(
      "SELECT m.id, c.collective, coalesce(m.batch, 1) AS batch FROM measurement m "
      "JOIN run_cell c ON c.id = m.cell_id WHERE m.launch_id = ?1 AND m.status = 'ok' AND EXISTS "
      "(SELECT 1 FROM sample s WHERE s.measurement_id = m.id AND s.phase = 1)",
      {launch});
  const TableView cells(what);
  std::vector<CellSamples> result;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const std::string collective = cells.text(c, "collective");
    const double batch = cells.real(c, "batch").value_or(1);
    const Table samples = reader.query(
        "SELECT rank, start_us, total_us, CASE WHEN coalesce(h2d_us, d2h_us, compute_us) IS NOT "
        "NULL THEN coalesce(h2d_us, 0) + coalesce(d2h_us, 0) + coalesce(compute_us, 0) END AS own "
        "FROM sample WHERE measurement_id = ?1 AND phase = 1 ORDER BY rank, iteration",
        {cells.integer(c, "id")});
    CellSamples cell{is_rooted(architecture, collective), collective == "training", {}};
    for (const auto& row : samples.rows) {
      const auto rank = static_cast<std::int64_t>(number(row[0]));
      if (cell.ranks.empty() || cell.ranks.back().rank != rank)
        cell.ranks.push_back({rank, {}, {}, {}, 0});
      auto& mine = cell.ranks.back();
      mine.span.push_back(number(row[2]) * batch);
      if (const double own = number(row[3]); !std::isnan(own)) mine.own.push_back(own);
      const auto clock = clocks.find(rank);
      const double start = number(row[1]);
      if (clock == clocks.end() || std::isnan(start)) continue;
      mine.start.push_back(clock->second.zero_us + start - clock->second.offset_us);
      mine.clock_error = clock->second.error_us;
    }
    result.push_back(std::move(cell));
  }
  return result;
}

/// Ranks that do the same work as `rank`, without it.
std::vector<const RankSamples*> others_of(const CellSamples& cell, const RankSamples& rank,
                                          Measure measure) {
  std::vector<const RankSamples*> others;
  const bool own_kind = measure == Measure::own_work && cell.rooted;
  if (own_kind && rank.rank == 0) return {};
  for (const auto& other : cell.ranks)
    if (other.rank != rank.rank && !(own_kind && other.rank == 0)) others.push_back(&other);
  return others;
}

/// How many times the others' time the rank takes in iteration i; nullopt where that means nothing.
std::optional<double> ratio_in(const RankSamples& rank,
                               const std::vector<const RankSamples*>& others, Measure measure,
                               std::size_t i) {
  const bool own = measure == Measure::own_work;
  std::vector<double> theirs;
  double error = rank.clock_error;
  for (const auto* other : others) {
    const auto& values = own ? other->own : other->start;
    if (i >= values.size()) return std::nullopt;
    theirs.push_back(values[i]);
    error = std::max(error, rank.clock_error + other->clock_error);
  }
  const auto& mine = own ? rank.own : rank.start;
  if (i >= mine.size()) return std::nullopt;
  const double typical = median(std::move(theirs));
  if (own) return typical > 0 && mine[i] > 0 ? std::optional(mine[i] / typical) : std::nullopt;
  // Those that came in time take so many times as long as the one that they wait for.
  if (rank.span[i] <= 0) return std::nullopt;
  return 1 + std::max(0.0, mine[i] - typical - error) / rank.span[i];
}

void add_cell(LaunchPaces& paces, const CellSamples& cell) {
  for (const Measure measure : kMeasures) {
    if (measure == Measure::arrival && cell.chained) continue;
    for (const auto& rank : cell.ranks) {
      const auto others = others_of(cell, rank, measure);
      if (others.empty()) continue;
      std::vector<double> ratios;
      for (std::size_t i = 0; i < rank.span.size(); ++i)
        if (const auto ratio = ratio_in(rank, others, measure, i)) ratios.push_back(*ratio);
      if (ratios.empty()) continue;
      auto& pace = paces[{measure, rank.rank}];
      pace.iterations += static_cast<std::int64_t>(ratios.size());
      pace.slow +=
          std::count_if(ratios.begin(), ratios.end(), [](double r) { return r > kSlowRank; });
      pace.cell_ratios.push_back(median(std::move(ratios)));
    }
  }
}

std::string verdict_of(const RankPace& pace, Verdict verdict) {
  const std::size_t slow = pace.slow_blocks.size();
  if (slow > 0 && slow < pace.launch_ratios.size()) return "changing";
  if (slow > 0) return verdict == Verdict::slower ? "yes" : "UNCLEAR";
  return pace.ratio.interval && pace.ratio.interval->high <= kSlowRank ? "no" : "UNCLEAR";
}

void judge_paces(std::vector<RankPace>& paces) {
  std::vector<Ratio> ratios;
  for (auto& pace : paces) {
    pace.ratio =
        ratio_paired(pace.launch_ratios, std::vector<double>(pace.launch_ratios.size(), 1.0));
    ratios.push_back(pace.ratio);
  }
  const auto verdicts = judge_table(ratios, EquivalenceBand{kSlowRank - 1});
  for (std::size_t i = 0; i < paces.size(); ++i)
    paces[i].straggler = verdict_of(paces[i], verdicts[i]);
}

std::string in_words(const RankPace& pace) {
  return fmt::format("rank {} of {} ({}, x {:.2f} in {})", pace.rank, pace.name,
                     pace.measure == Measure::own_work ? "own work" : "late arrival",
                     median(pace.slow_ratios),
                     counted_of(pace.slow_blocks.size(), pace.launch_ratios.size(), "launch"));
}

/// As group_key() has it.
std::string key_of(const RankPace& pace) {
  std::vector<std::string> parts;
  for (const auto& value : pace.group) parts.push_back(plain_text(value));
  return join(parts, "|");
}

}  // namespace

std::vector<RankPace> paces_of_run(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT run_id, environment, backend, architecture, ranks, group_knobs, group_row, "
      "launch_row, block FROM v_launch WHERE run_row = ?1 AND launch_status = 'ok' "
      "ORDER BY group_row, block",
      {run});
  const TableView rows(table);
  std::map<std::tuple<std::int64_t, Measure, std::int64_t>, RankPace> by_rank;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    LaunchPaces launch;
    for (const auto& cell :
         cells_of(reader, rows.integer(i, "launch_row"), rows.text(i, "architecture")))
      add_cell(launch, cell);
    for (const auto& [key, seen] : launch) {
      auto& pace = by_rank[{rows.integer(i, "group_row"), key.first, key.second}];
      pace.group.assign(table.rows[i].begin(), table.rows[i].begin() + 6);
      pace.name =
          fmt::format("{} {} {} {} ranks", rows.text(i, "environment"), rows.text(i, "backend"),
                      rows.text(i, "architecture"), rows.integer(i, "ranks"));
      pace.measure = key.first;
      pace.rank = key.second;
      pace.launch_ratios.push_back(median(seen.cell_ratios));
      pace.slow += seen.slow;
      pace.iterations += seen.iterations;
      if (!seen.is_slow()) continue;
      pace.slow_blocks.push_back(rows.text(i, "block"));
      pace.slow_ratios.push_back(pace.launch_ratios.back());
    }
  }
  std::vector<RankPace> paces;
  paces.reserve(by_rank.size());
  for (auto& [key, pace] : by_rank) paces.push_back(std::move(pace));
  judge_paces(paces);
  return paces;
}

std::string straggler_note(const Reader& reader, std::int64_t run,
                           const std::set<std::string>& of_groups) {
  const Table size = reader.query(
      "SELECT coalesce(sum(v.n * v.ranks), 0) AS samples FROM v_measurement v "
      "WHERE v.run_row = ?1 AND v.counts",
      {run});
  if (TableView(size).integer(0, "samples") > kMostSamplesOfNote)
    return fmt::format(
        "stragglers: not looked for among more than {} samples; see `query stragglers`",
        kMostSamplesOfNote);
  // Judged among all of the run, as the table does it; printed of the groups that were asked about.
  auto paces = paces_of_run(reader, run);
  if (!of_groups.empty())
    std::erase_if(paces, [&](const auto& pace) { return !of_groups.contains(key_of(pace)); });
  if (paces.empty()) return "";
  std::set<std::string> groups;
  std::vector<std::string> steady;
  std::vector<std::string> changing;
  std::size_t unclear = 0;
  for (const auto& pace : paces) {
    groups.insert(pace.name + plain_text(pace.group.back()));
    if (pace.straggler == "yes") steady.push_back(in_words(pace));
    if (pace.straggler == "changing") changing.push_back(in_words(pace));
    unclear += pace.straggler == "UNCLEAR" ? 1 : 0;
  }
  const std::string not_told =
      unclear == 0
          ? ""
          : fmt::format("; UNCLEAR in {}", counted_of(unclear, paces.size(), "comparison"));
  if (steady.empty() && changing.empty())
    return fmt::format("stragglers: none found in {}{}", counted(groups.size(), "group"), not_told);
  constexpr std::size_t kShown = 3;
  const auto some = [](std::vector<std::string> list) {
    const std::size_t more = list.size() > kShown ? list.size() - kShown : 0;
    list.resize(list.size() - more);
    return join(list, ", ") + (more == 0 ? "" : fmt::format(" and {} more", more));
  };
  std::vector<std::string> parts;
  if (!steady.empty()) parts.push_back("SLOWER in every launch: " + some(steady));
  if (!changing.empty()) parts.push_back("CHANGING between launches: " + some(changing));
  return fmt::format("stragglers: {}{}; see `query stragglers`", join(parts, "; "), not_told);
}

}  // namespace dynamiccl
