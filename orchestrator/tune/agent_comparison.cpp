#include "orchestrator/tune/agent_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"

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

std::size_t index_of(const std::vector<ReplayScore>& scores, const std::string& agent) {
  for (std::size_t a = 0; a < scores.size(); ++a)
    if (scores[a].agent == agent) return a;
  throw Error(ErrorKind::bug, "no score of agent " + agent);
}

int tasks_of(const std::vector<std::vector<ReplayScore>>& parts) {
  int tasks = 0;
  for (const auto& part : parts) tasks += part.front().tasks;
  return tasks;
}

/// ln(its choices' time over the default's), mean over tasks and seeds, of each agent.
std::vector<double> log_times(const std::vector<std::vector<ReplayScore>>& parts,
                              const std::vector<std::string>& agents) {
  const int tasks = tasks_of(parts);
  std::vector<double> times;
  for (const std::string& agent : agents)
    times.push_back(mean(each(pooled(parts, index_of(parts.front(), agent)),
                              [&](const PooledSeed& s) { return -s.log_faster / tasks; })));
  return times;
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

AgentPair compare_pair(const std::vector<std::vector<ReplayScore>>& parts, const std::string& agent,
                       const std::string& other) {
  const auto own = pooled(parts, index_of(parts.front(), agent));
  const auto others = pooled(parts, index_of(parts.front(), other));
  const int tasks = tasks_of(parts);
  std::vector<double> log_time;
  std::vector<double> to_95;
  for (std::size_t s = 0; s < own.size(); ++s) {
    log_time.push_back((others[s].log_faster - own[s].log_faster) / tasks);
    to_95.push_back(median(own[s].to_95) / median(others[s].to_95));
  }
  AgentPair pair;
  pair.time = exponential(mean_over_seeds(log_time));
  // 0: the other never does; infinite: this one; no number: neither.
  if (std::all_of(to_95.begin(), to_95.end(),
                  [](double ratio) { return std::isfinite(ratio) && ratio > 0; }))
    pair.to_95 = median_over_seeds(to_95);
  return pair;
}

BarAnswer answer_of(const SeedFigure& figure, double at_most) {
  if (figure.high <= at_most) return BarAnswer::reached;
  return figure.low > at_most ? BarAnswer::missed : BarAnswer::open;
}

SeedFigure compare_group(const std::vector<std::vector<ReplayScore>>& parts,
                         const std::vector<std::string>& agents, const std::string& other) {
  std::vector<double> times = log_times(parts, agents);
  const double reference = log_times(parts, {other}).front();
  for (double& time : times) time -= reference;
  return exponential(mean_over_seeds(times));
}

SeedFigure compare_groups(const std::vector<std::vector<ReplayScore>>& parts,
                          const std::vector<std::string>& agents,
                          const std::vector<std::string>& others) {
  const std::vector<double> a = log_times(parts, agents);
  const std::vector<double> b = log_times(parts, others);
  const double centre = mean(a) - mean(b);
  const auto share = [](const std::vector<double>& values) {
    const double sd = values.size() > 1 ? standard_deviation(values) : 0;
    return sd * sd / static_cast<double>(values.size());
  };
  const double of_a = share(a), of_b = share(b), both = of_a + of_b;
  if (both <= 0) return exponential({centre, centre, centre});
  const auto freedom = [](double part, const std::vector<double>& values) {
    return values.size() > 1 ? part * part / static_cast<double>(values.size() - 1) : 0;
  };
  const double degrees = both * both / (freedom(of_a, a) + freedom(of_b, b));
  const double reach = student_t_quantile(0.5 + kConfidence / 2, degrees) * std::sqrt(both);
  return exponential({centre, centre - reach, centre + reach});
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
