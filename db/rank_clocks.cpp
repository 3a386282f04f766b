#include "db/rank_clocks.hpp"

#include <algorithm>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {

double RankClock::global_us(double start_us) const {
  const double local = zero_us + start_us;
  return local - offset_us - drift * (local - at_us);
}

std::optional<RankClock> rank_clock(const HelloRecord* hello, const ClockRecord* clock) {
  if (hello == nullptr || clock == nullptr) return std::nullopt;
  constexpr double kNanosPerMicro = 1e3;
  RankClock result;
  result.zero_us = hello->clock_ns / kNanosPerMicro;
  if (clock->shared) return result;
  result.at_us = clock->at_us;
  result.offset_us = clock->offset_us;
  result.error_us = std::max(clock->error_us, clock->end_error_us);
  const double apart = clock->end_at_us - clock->at_us;
  if (apart > 0) result.drift = (clock->end_offset_us - clock->offset_us) / apart;
  return result;
}

std::optional<ArrivalSkew> arrival_skew(const std::vector<RankCell>& cells,
                                        const std::vector<std::optional<RankClock>>& clocks) {
  std::vector<const std::vector<double>*> starts;
  std::vector<const RankClock*> used;
  std::vector<double> errors;
  for (const auto& [rank, record] : cells) {
    const auto& mine = record->measured.start_us;
    if (mine.empty()) continue;
    const auto index = static_cast<std::size_t>(rank);
    if (index >= clocks.size() || !clocks[index]) return std::nullopt;
    starts.push_back(&mine);
    used.push_back(&*clocks[index]);
    errors.push_back(clocks[index]->error_us);
  }
  if (starts.size() < 2) return std::nullopt;
  std::size_t n = starts.front()->size();
  for (const auto* values : starts) n = std::min(n, values->size());
  std::vector<double> skews;
  for (std::size_t i = 0; i < n; ++i) {
    double first = used[0]->global_us((*starts[0])[i]);
    double last = first;
    for (std::size_t r = 1; r < starts.size(); ++r) {
      const double at = used[r]->global_us((*starts[r])[i]);
      first = std::min(first, at);
      last = std::max(last, at);
    }
    skews.push_back(last - first);
  }
  std::sort(errors.rbegin(), errors.rend());
  ArrivalSkew skew;
  skew.max_us = *std::max_element(skews.begin(), skews.end());
  skew.median_us = median(std::move(skews));
  skew.error_us = errors[0] + errors[1];
  return skew;
}

}  // namespace dynamiccl
