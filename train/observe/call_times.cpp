#include "train/observe/call_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kNoCalls[] = {"agree", "serve", "encode", "decode"};

/// Not what moves no gradients: ranks agreeing on an order, a server's part of a worker that is
/// one, and a codec's work in a GPU's queue.
bool is_call(const Span& span) {
  return std::none_of(std::begin(kNoCalls), std::end(kNoCalls),
                      [&](const char* name) { return std::strcmp(span.what, name) == 0; });
}

std::optional<double> burstiness_of(const std::vector<double>& gaps) {
  if (gaps.size() < 2) return std::nullopt;
  const auto count = static_cast<double>(gaps.size());
  double mean = 0;
  for (const double gap : gaps) mean += gap / count;
  double variance = 0;
  for (const double gap : gaps) variance += (gap - mean) * (gap - mean) / count;
  const double deviation = std::sqrt(variance);
  if (deviation + mean <= 0) return std::nullopt;
  return (deviation - mean) / (deviation + mean);
}

/// A tenth of a microsecond is more than clocks tell.
nlohmann::json tenths(std::optional<double> us) {
  return us ? nlohmann::json(std::round(*us * 10) / 10) : nlohmann::json();
}

nlohmann::json thousandths(std::optional<double> share) {
  return share ? nlohmann::json(std::round(*share * 1000) / 1000) : nlohmann::json();
}

}  // namespace

std::size_t CallTimes::kind_of(const char* what) {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(),
                                  [&](const char* one) { return std::strcmp(one, what) == 0; });
  if (found != kinds_.end()) return static_cast<std::size_t>(found - kinds_.begin());
  kinds_.push_back(what);
  return kinds_.size() - 1;
}

void CallTimes::add(double start_us, const std::vector<Span>& spans, bool follows) {
  if (!follows) last_start_us_.reset();
  CallsOfStep step;
  std::vector<double> starts;
  for (const Span& span : spans) {
    if (!is_call(span)) continue;
    ++step.calls;
    step.calls_us += span.end_us - span.start_us;
    starts.push_back(span.start_us);
    if (calls_.size() < kMostCalls)
      calls_.push_back({steps_.size(), kind_of(span.what), span.piece, span.start_us - start_us,
                        span.end_us - span.start_us, span.bytes});
    else
      ++left_out_;
  }
  std::sort(starts.begin(), starts.end());
  std::vector<double> gaps;
  for (const double start : starts) {
    if (last_start_us_) gaps.push_back(start - *last_start_us_);
    last_start_us_ = start;
  }
  if (!gaps.empty()) {
    step.median_gap_us = median(gaps);
    step.largest_gap_us = *std::max_element(gaps.begin(), gaps.end());
    step.burstiness = burstiness_of(gaps);
    gaps_.insert(gaps_.end(), gaps.begin(), gaps.end());
  }
  steps_.push_back(step);
}

nlohmann::json CallTimes::as_json() const {
  if (calls_.empty()) return {};
  nlohmann::json each = nlohmann::json::array();
  for (const Call& call : calls_) {
    each.push_back({call.step, call.kind, call.piece, tenths(call.start_us), tenths(call.us)});
    if (call.bytes > 0) each.back().push_back(call.bytes);
  }
  nlohmann::json steps = nlohmann::json::array();
  for (const CallsOfStep& step : steps_)
    steps.push_back({step.calls, tenths(step.calls_us), tenths(step.median_gap_us),
                     tenths(step.largest_gap_us), thousandths(step.burstiness)});
  return {{"burstiness", thousandths(burstiness_of(gaps_))},
          {"kinds", kinds_},
          {"each", std::move(each)},
          {"left_out", left_out_},
          {"steps", std::move(steps)}};
}

}  // namespace dynamiccl
