#include "db/measurement_statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/statistics/statistics.hpp"
#include "core/statistics/warmup.hpp"

namespace dynamiccl {
namespace {

using Values = std::vector<double> SampleArrays::*;

constexpr std::array<Values, 9> kArrays{
    &SampleArrays::start_us,   &SampleArrays::total_us,  &SampleArrays::collective_us,
    &SampleArrays::h2d_us,     &SampleArrays::d2h_us,    &SampleArrays::send_us,
    &SampleArrays::compute_us, &SampleArrays::device_us, &SampleArrays::waited_us};

/// @returns what is wrong with the arrays, or ""
std::string defect_of(const SampleArrays& samples) {
  const std::size_t n = samples.total_us.size();
  for (const Values array : kArrays) {
    const auto& values = samples.*array;
    if (!values.empty() && values.size() != n) {
      return fmt::format("{} values for {} totals", values.size(), n);
    }
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](double v) { return std::isfinite(v) && v >= 0; });
    if (bad != values.end()) {
      return fmt::format("sample {} is {}, no time", bad - values.begin(), *bad);
    }
  }
  if (!std::is_sorted(samples.start_us.begin(), samples.start_us.end())) {
    return "samples start out of order";
  }
  return "";
}

int severity(CellStatus status) {
  switch (status) {
    case CellStatus::ok:
      return 0;
    case CellStatus::planned:
      return 1;
    case CellStatus::unsupported:
      return 2;
    case CellStatus::interrupted:
      return 3;
    case CellStatus::timed_out:
      return 4;
    case CellStatus::failed:
      break;
  }
  return 5;
}

/// @returns how the method of `b` differs from that of `a`, or ""
std::string method_difference(const CellRecord& a, const CellRecord& b) {
  if (a.cadence != b.cadence) {
    return fmt::format("cadence {} against {}", name_of(b.cadence), name_of(a.cadence));
  }
  if (a.batch != b.batch) return fmt::format("batch {} against {}", b.batch, a.batch);
  if (a.barrier != b.barrier) return fmt::format("barrier {} against {}", b.barrier, a.barrier);
  const std::size_t have = b.measured.total_us.size();
  const std::size_t want = a.measured.total_us.size();
  if (have != want) return fmt::format("{} samples against {}", have, want);
  return "";
}

void worsen(MeasurementOutcome& outcome, CellStatus status, const std::string& reason) {
  if (severity(status) <= severity(outcome.status)) return;
  outcome.status = status;
  outcome.reason = reason;
}

/// One iteration's value and the rank index it came from (unused with mean).
struct Aggregated {
  std::vector<double> totals;
  std::vector<std::size_t> from;
  std::vector<double> scale;  ///< of that rank's parts, so that they are parts of the total
};

Aggregated aggregate(const std::vector<const SampleArrays*>& ranks, RankAggregation how) {
  const std::size_t n = ranks.front()->total_us.size();
  Aggregated result{ranks.front()->total_us, std::vector<std::size_t>(n, 0),
                    std::vector<double>(n, 1)};
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const auto& totals = ranks[r]->total_us;
    for (std::size_t i = 0; i < n; ++i) {
      double& value = result.totals[i];
      if (how == RankAggregation::mean) {
        value += totals[i];
      } else if (how == RankAggregation::max ? totals[i] > value : totals[i] < value) {
        value = totals[i];
        result.from[i] = r;
      }
    }
  }
  if (how == RankAggregation::mean) {
    for (double& value : result.totals) value /= static_cast<double>(ranks.size());
  }
  return result;
}

/// Where one rank computes for the others, the parts are that rank's: the workers' share of the
/// same time is waiting for it, whichever of them ends last by a hair. Its parts are scaled to the
/// total.
void take_parts_of_server(const std::vector<const SampleArrays*>& ranks, Aggregated& aggregated) {
  std::size_t server = 0;
  double most_us = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& compute = ranks[r]->compute_us;
    const double sum_us = std::accumulate(compute.begin(), compute.end(), 0.0);
    if (sum_us <= most_us) continue;
    most_us = sum_us;
    server = r;
  }
  if (most_us <= 0) return;
  for (std::size_t i = 0; i < aggregated.totals.size(); ++i) {
    const double own_us = ranks[server]->total_us[i];
    aggregated.from[i] = server;
    aggregated.scale[i] = own_us > 0 ? aggregated.totals[i] / own_us : 1;
  }
}

bool is_server(const CellRecord& record) {
  return record.training && record.training->role == "server";
}

/// A training step's parts are its workers': what a server does besides summing is waiting for
/// them. Those of the worker that gave the iteration its value, scaled to it.
Aggregated parts_of_workers(const std::vector<const SampleArrays*>& workers, const Aggregated& all,
                            RankAggregation how) {
  Aggregated parts = aggregate(workers, how);
  for (std::size_t i = 0; i < parts.totals.size(); ++i)
    if (parts.totals[i] > 0) parts.scale[i] = all.totals[i] / parts.totals[i];
  return parts;
}

std::optional<double> component_median(const std::vector<const SampleArrays*>& ranks,
                                       const Aggregated& aggregated, RankAggregation how,
                                       Values component) {
  const bool known = std::any_of(ranks.begin(), ranks.end(),
                                 [&](const auto* r) { return !(r->*component).empty(); });
  if (!known) return std::nullopt;
  const auto at = [&](std::size_t rank, std::size_t i) {
    const auto& values = ranks[rank]->*component;
    return values.empty() ? 0.0 : values[i];
  };
  std::vector<double> values(aggregated.totals.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (how != RankAggregation::mean) {
      values[i] = at(aggregated.from[i], i) * aggregated.scale[i];
      continue;
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) values[i] += at(r, i);
    values[i] /= static_cast<double>(ranks.size());
  }
  return median(std::move(values));
}

/// First against last third (Hoefler, Belli SC'15): further apart than twice the noise, and by at
/// least 1 %, below which a coarse clock has no noise to compare with.
bool drifts(const std::vector<double>& totals, double centre, double mad) {
  const auto third = static_cast<std::ptrdiff_t>(totals.size() / 3);
  if (third < 3) return false;
  const double first = median({totals.begin(), totals.begin() + third});
  const double last = median({totals.end() - third, totals.end()});
  return std::fabs(first - last) > std::max(2 * mad, 0.01 * centre);
}

/// Ranks wait for each other, so that what any of them waits may delay all, one after the other.
void take_waits_off(const std::vector<const SampleArrays*>& ranks,
                    const std::vector<double>& totals, MeasurementSummary& summary) {
  std::vector<double> left = totals;
  double most_share = 0;
  for (const auto* rank : ranks) {
    if (rank->waited_us.size() != totals.size()) return;
    double waited_us = 0;
    double total_us = 0;
    for (std::size_t i = 0; i < totals.size(); ++i) {
      const double in_it_us = std::min(rank->waited_us[i], rank->total_us[i]);
      left[i] -= in_it_us;
      waited_us += in_it_us;
      total_us += rank->total_us[i];
    }
    if (total_us > 0) most_share = std::max(most_share, waited_us / total_us);
  }
  for (double& value : left) value = std::max(value, 0.0);
  summary.waited_share = most_share;
  summary.unwaited_us = median(std::move(left));
}

double quantile_of_sorted(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto lower = static_cast<std::size_t>(place);
  const std::size_t upper = std::min(lower + 1, sorted.size() - 1);
  return sorted[lower] + (place - static_cast<double>(lower)) * (sorted[upper] - sorted[lower]);
}

}  // namespace

MeasurementOutcome judge(const std::vector<RankCell>& cells) {
  MeasurementOutcome outcome;
  const CellRecord* first = nullptr;
  for (const auto& [rank, record] : cells) {
    const auto say = [rank = rank](const std::string& what) {
      return fmt::format("rank {}: {}", rank, what);
    };
    for (const auto* samples : {&record->warmup, &record->measured}) {
      const std::string defect = defect_of(*samples);
      if (defect.empty()) continue;
      outcome.samples_sound = false;
      worsen(outcome, CellStatus::failed, say(defect));
    }
    worsen(outcome, record->status,
           say(record->reason.empty() ? "no reason given" : record->reason));
    if (record->wrong > 0) {
      worsen(outcome, CellStatus::failed,
             say(fmt::format("{} of {} elements are wrong", record->wrong, record->checked)));
    }
    if (record->status != CellStatus::ok || record->measured.total_us.empty()) continue;
    if (first == nullptr) first = record;
    const std::string difference = method_difference(*first, *record);
    if (!difference.empty()) {
      worsen(outcome, CellStatus::failed, say("measured otherwise than others: " + difference));
    }
  }
  if (outcome.status == CellStatus::ok && first == nullptr) {
    worsen(outcome, CellStatus::failed, "no rank has a sample");
  }
  return outcome;
}

std::optional<MeasurementSummary> summarise(const std::vector<RankCell>& cells,
                                            RankAggregation aggregation) {
  std::vector<const SampleArrays*> ranks;
  std::vector<const SampleArrays*> workers;
  bool trains = false;
  for (const auto& cell : cells) {
    if (cell.record->measured.total_us.empty()) continue;
    ranks.push_back(&cell.record->measured);
    trains = trains || cell.record->training;
    if (!is_server(*cell.record)) workers.push_back(&cell.record->measured);
  }
  if (ranks.empty()) return std::nullopt;
  if (workers.empty()) workers = ranks;
  const std::size_t n = ranks.front()->total_us.size();
  for (const auto* rank : ranks) {
    if (rank->total_us.size() != n) return std::nullopt;
  }
  Aggregated aggregated = aggregate(ranks, aggregation);
  if (aggregation != RankAggregation::mean && !trains) take_parts_of_server(ranks, aggregated);
  const Aggregated parts = trains ? parts_of_workers(workers, aggregated, aggregation) : aggregated;
  std::vector<double> sorted = aggregated.totals;
  std::sort(sorted.begin(), sorted.end());

  MeasurementSummary s;
  s.n = static_cast<std::int64_t>(n);
  s.min_us = sorted.front();
  s.max_us = sorted.back();
  s.median_us = quantile_of_sorted(sorted, 0.5);
  s.mean_us = mean(sorted);
  if (n >= 20) s.p95_us = quantile_of_sorted(sorted, 0.95);
  if (n >= 100) s.p99_us = quantile_of_sorted(sorted, 0.99);
  s.mad_us = median_absolute_deviation(sorted);
  s.lag1 = lag1_autocorrelation(aggregated.totals);
  const double q1 = quantile_of_sorted(sorted, 0.25);
  const double q3 = quantile_of_sorted(sorted, 0.75);
  const double reach = 1.5 * (q3 - q1);
  s.outliers = std::count_if(sorted.begin(), sorted.end(),
                             [&](double v) { return v < q1 - reach || v > q3 + reach; });
  s.not_stationary = drifts(aggregated.totals, s.median_us, s.mad_us);
  if (const auto settled = settled_after(aggregated.totals))
    s.settled_at = static_cast<std::int64_t>(*settled);
  const auto component = [&](Values which) {
    return component_median(trains ? workers : ranks, parts, aggregation, which);
  };
  s.collective_us = component(&SampleArrays::collective_us);
  s.h2d_us = component(&SampleArrays::h2d_us);
  s.d2h_us = component(&SampleArrays::d2h_us);
  s.send_us = component(&SampleArrays::send_us);
  s.compute_us = component(&SampleArrays::compute_us);
  s.device_us = component(&SampleArrays::device_us);
  take_waits_off(ranks, aggregated.totals, s);
  return s;
}

}  // namespace dynamiccl
