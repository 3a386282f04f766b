#include "orchestrator/tune/agent_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

constexpr double kConfidence = 0.95;

/// Mean over seeds with the interval of t.
SeedFigure mean_over_seeds(const std::vector<double>& values) {
  const double centre = mean(values);
  if (values.size() < 2) return {centre, centre, centre};
  const auto n = static_cast<double>(values.size());
  const double reach =
      student_t_quantile(0.5 + kConfidence / 2, n - 1) * standard_deviation(values) / std::sqrt(n);
  return {centre, centre - reach, centre + reach};
}

SeedFigure exponential(const SeedFigure& log) {
  return {std::exp(log.value), std::exp(log.low), std::exp(log.high)};
}

/// Median of the seeds' medians, between the second lowest and the second highest seed: of ten
/// seeds an interval of 97.9 % (order statistics).
SeedFigure median_over_seeds(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() >= 8 ? 1 : 0;
  return {median(values), values[cut], values[values.size() - 1 - cut]};
}

/// One seed of one agent over all replays.
struct PooledSeed {
  double log_faster = 0;
  double slower = 0;
  double evaluations = 0;
  std::vector<double> to_95;
};

std::vector<PooledSeed> pooled(const std::vector<std::vector<ReplayScore>>& parts,
                               std::size_t agent) {
  std::vector<PooledSeed> seeds;
  for (const auto& part : parts) {
    const ReplayScore& score = part.at(agent);
    seeds.resize(std::max(seeds.size(), score.by_seed.size()));
    for (std::size_t s = 0; s < score.by_seed.size(); ++s) {
      const SeedScore& one = score.by_seed[s];
      seeds[s].log_faster += one.log_faster;
      seeds[s].slower += one.slower;
      seeds[s].evaluations += one.evaluations;
      seeds[s].to_95.insert(seeds[s].to_95.end(), one.to_95.begin(), one.to_95.end());
    }
  }
  return seeds;
}

template <class Part>
std::vector<double> each(const std::vector<PooledSeed>& seeds, Part&& part) {
  std::vector<double> values;
  for (const PooledSeed& seed : seeds) values.push_back(part(seed));
  return values;
}

ComparedAgent compared(const std::string& name, const std::vector<PooledSeed>& seeds, int tasks) {
  ComparedAgent row;
  row.agent = name;
  row.time = exponential(
      mean_over_seeds(each(seeds, [&](const PooledSeed& s) { return -s.log_faster / tasks; })));
  row.to_95 = median_over_seeds(each(seeds, [](const PooledSeed& s) { return median(s.to_95); }));
  row.slower = mean_over_seeds(each(seeds, [](const PooledSeed& s) { return s.slower; }));
  row.evaluations = mean(each(seeds, [](const PooledSeed& s) { return s.evaluations; }));
  row.reached_95 = mean(each(seeds, [](const PooledSeed& s) {
    const auto reached = std::count_if(s.to_95.begin(), s.to_95.end(), [](double evaluations) {
      return std::isfinite(evaluations);
    });
    return static_cast<double>(reached) / static_cast<double>(s.to_95.size());
  }));
  return row;
}

std::string count_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.1f}", value) : "never";
}

}  // namespace

AgentComparison compare_agents(const std::vector<std::vector<ReplayScore>>& parts,
                               const std::vector<std::string>& candidates) {
  AgentComparison result;
  if (parts.empty() || parts.front().empty()) return result;
  double oracle = 0;
  for (const auto& part : parts) {
    result.tasks += part.front().tasks;
    oracle += part.front().oracle_log_faster;
  }
  result.seeds = parts.front().front().seeds;
  if (result.tasks == 0) return result;
  result.oracle_time = std::exp(-oracle / result.tasks);
  std::vector<std::vector<PooledSeed>> seeds;
  for (std::size_t a = 0; a < parts.front().size(); ++a) {
    seeds.push_back(pooled(parts, a));
    result.rows.push_back(compared(parts.front()[a].agent, seeds.back(), result.tasks));
  }
  const auto may_be_best = [&](const ComparedAgent& row) {
    return std::find(candidates.begin(), candidates.end(), row.agent) != candidates.end();
  };
  std::optional<std::size_t> most;
  for (std::size_t a = 0; a < result.rows.size(); ++a)
    if (may_be_best(result.rows[a]) &&
        (!most || result.rows[a].time.value < result.rows[*most].time.value))
      most = a;
  if (!most) return result;
  const ComparedAgent* best = nullptr;
  for (std::size_t a = 0; a < result.rows.size(); ++a) {
    ComparedAgent& row = result.rows[a];
    std::vector<double> difference;
    for (std::size_t s = 0; s < seeds[a].size(); ++s)
      difference.push_back((seeds[*most][s].log_faster - seeds[a][s].log_faster) / result.tasks);
    row.behind = exponential(mean_over_seeds(difference));
    row.as_good = a == *most || row.behind.low <= 1;
    if (!row.as_good || !may_be_best(row)) continue;
    const auto order = [](const ComparedAgent& one) {
      return std::pair(one.to_95.value, one.slower.value);
    };
    if (best == nullptr || order(row) < order(*best)) best = &row;
  }
  result.best = best->agent;
  return result;
}

std::string comparison_markdown(const AgentComparison& comparison) {
  std::string text =
      "| agent | time of the default's | of the lowest | evaluations to 95 % | reached | "
      "SLOWER choices a seed | evaluations |\n|---|---|---|---|---|---|---|\n";
  for (const ComparedAgent& row : comparison.rows)
    text += fmt::format(
        "| {} | {:.3f} [{:.3f}, {:.3f}] | {:.3f} [{:.3f}, {:.3f}]{} | {} [{}, {}] | {:.0f} % | "
        "{:.1f} [{:.1f}, {:.1f}] | {:.0f} |\n",
        row.agent, row.time.value, row.time.low, row.time.high, row.behind.value, row.behind.low,
        row.behind.high, row.as_good ? "" : " *", count_text(row.to_95.value),
        count_text(row.to_95.low), count_text(row.to_95.high), 100 * row.reached_95,
        row.slower.value, row.slower.low, row.slower.high, row.evaluations);
  return text;
}

}  // namespace dynamiccl
