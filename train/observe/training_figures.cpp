#include "train/observe/training_figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/statistics/statistics.hpp"
#include "train/codecs/coded_parts.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json points_of(const CostTable& table) {
  json points = json::array();
  for (const auto& point : table.points()) points.push_back({point.bytes, point.time_us});
  return points;
}

json event_of(const Span& span, const std::string& name, const char* category, int rank,
              int thread) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"ts", span.start_us},
          {"pid", rank},
          {"tid", thread},
          {"dur", span.end_us - span.start_us}};
}

/// Microseconds in which at least one of them went on.
double united_us(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start_us < b.start_us; });
  double united = 0;
  double until = 0;
  for (const Span& span : spans) {
    united += std::max(0.0, span.end_us - std::max(span.start_us, until));
    until = std::max(until, span.end_us);
  }
  return united;
}

/// Of an encoded piece, once the density is what was asked for.
std::optional<std::uint64_t> late_message_bytes(const ExchangePlan& plan, std::size_t piece) {
  if (plan.codec.codec == Codec::none) return std::nullopt;
  return message_bytes(plan, piece, static_cast<std::uint64_t>(plan.codec.density_warmup));
}

}  // namespace

void add_step(SampleArrays& samples, double start_us, double total_us,
              std::optional<double> collective_us, double compute_us,
              std::optional<double> waited_us) {
  samples.start_us.push_back(start_us);
  samples.total_us.push_back(total_us);
  if (collective_us) samples.collective_us.push_back(*collective_us);
  samples.compute_us.push_back(compute_us);
  if (waited_us) samples.waited_us.push_back(*waited_us);
}

void FigureCollector::add(const StepTimes& times, double total_us, bool measured,
                          std::optional<double> busy_us) {
  losses_.push_back(times.loss);
  if (!measured) return;
  measured_.push_back(times);
  if (total_us > 0) accounted_.push_back(times.parts_us() / total_us);
  if (busy_us && *busy_us > 0) exposed_.push_back(times.exposed_us / *busy_us);
}

void FigureCollector::add_calls(double start_us, std::vector<Span> spans, bool counts,
                                bool follows) {
  if (counts) calls_.add(start_us, spans, follows);
  last_spans_ = std::move(spans);
}

void FigureCollector::add_trace(const std::vector<Span>& computing, int rank) {
  const double busy_us = united_us(last_spans_);
  if (exposed_.empty() && !measured_.empty() && busy_us > 0)
    exposed_.push_back(measured_.back().exposed_us / busy_us);
  for (const auto& span : computing)
    trace_.push_back(
        event_of(span, fmt::format("{} {}", span.what, span.piece), "computation", rank, 0));
  for (const auto& span : last_spans_) {
    auto event = event_of(span, fmt::format("{} {}", span.what, span.piece), "communication", rank,
                          1 + static_cast<int>(span.lane));
    if (span.bytes > 0) {  // a part of a piece, plain
      event["args"] = {{"bytes", span.bytes}, {"nominal_bytes", span.bytes}};
    } else if (span.piece < plan_.pieces.size()) {
      const std::uint64_t nominal = plan_.pieces[span.piece].count * sizeof(float);
      event["args"] = {{"bytes", late_message_bytes(plan_, span.piece).value_or(nominal)},
                       {"nominal_bytes", nominal}};
    }
    trace_.push_back(std::move(event));
  }
}

void FigureCollector::fill(TrainingFigures& figures, double wire_bytes) const {
  const auto typical = [&](double StepTimes::*member) {
    std::vector<double> values;
    for (const auto& step : measured_) values.push_back(step.*member);
    return values.empty() ? 0 : median(values);
  };
  figures.forward_us = typical(&StepTimes::forward_us);
  figures.backward_us = typical(&StepTimes::backward_us);
  figures.update_us = typical(&StepTimes::update_us);
  figures.exposed_us = typical(&StepTimes::exposed_us);
  figures.details["data_us"] = typical(&StepTimes::data_us);
  if (!accounted_.empty()) figures.details["accounted"] = median(accounted_);
  if (!exposed_.empty()) figures.details["exposed_of_busy"] = median(exposed_);
  figures.wire_bytes = wire_bytes;
  std::vector<double> known;
  json losses = json::array();
  for (const double loss : losses_) {
    if (loss != kNoLoss) known.push_back(loss);
    losses.push_back(loss == kNoLoss ? json() : json(loss));
  }
  figures.first_loss = known.empty() ? kNoLoss : known.front();
  figures.last_loss = kNoLoss;
  const std::size_t last = std::min<std::size_t>(10, known.size());
  if (last > 0)
    figures.last_loss =
        std::accumulate(known.end() - static_cast<std::ptrdiff_t>(last), known.end(), 0.0) /
        static_cast<double>(last);
  figures.details["losses"] = std::move(losses);
  figures.details["trace"] = trace_;
  energy_.describe(figures);
  if (auto calls = calls_.as_json(); !calls.is_null()) figures.details["calls"] = std::move(calls);
}

std::optional<std::size_t> FigureCollector::first_without_loss() const {
  const auto bad = std::find_if(losses_.begin(), losses_.end(),
                                [](double loss) { return !std::isfinite(loss); });
  if (bad == losses_.end()) return std::nullopt;
  return static_cast<std::size_t>(bad - losses_.begin()) + 1;
}

void describe(TrainingFigures& figures, const ExchangePlan& plan, const LinkCost& link) {
  auto& details = figures.details;
  details["servers"] = plan.servers;
  if (plan.servers > 0)
    details["placement"] =
        name_of(plan.colocated ? ServerPlacement::colocated : ServerPlacement::dedicated);
  details["library"] = learner_library();
  details["messages"] = plan.pieces.size();
  details["credit_bytes"] = plan.credit_bytes;
  json pieces = json::array();
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    pieces.push_back({piece.offset, piece.count, piece.server});
    if (const auto bytes = late_message_bytes(plan, i)) pieces.back().push_back(*bytes);
  }
  details["pieces"] = std::move(pieces);
  details["cost_us"] = points_of(link.time);
  details["cost_second_us"] = points_of(link.second);
  details["cost_cpu_us"] = points_of(link.cpu);
  details["cost_busy_us"] = points_of(link.busy_time);
  details["cost_busy_second_us"] = points_of(link.busy_second);
  details["cost_lost_us"] = points_of(link.lost);
}

void describe(TrainingFigures& figures, const TrialResult& trial,
              const std::vector<ExchangePlan>& plans) {
  if (trial.tried.empty()) return;
  json tried = json::array();
  for (const TrialRun& run : trial.tried) {
    const ExchangePlan& plan = plans[run.candidate];
    const auto largest =
        std::max_element(plan.pieces.begin(), plan.pieces.end(),
                         [](const Piece& a, const Piece& b) { return a.count < b.count; });
    tried.push_back({{"messages", plan.pieces.size()},
                     {"largest_bytes", largest->count * sizeof(float)},
                     {"credit_bytes", plan.credit_bytes},
                     {"step_us", run.step_us},
                     {"chosen", run.candidate == trial.chosen}});
  }
  figures.details["trial"] = std::move(tried);
}

void describe(TrainingFigures& figures, const std::vector<TriedPath>& tried) {
  if (tried.empty()) return;
  json paths = json::array();
  for (const TriedPath& each : tried)
    paths.push_back({{"lanes", each.path.lanes},
                     {"by_host", each.path.by_host},
                     {"own_ring", each.path.own_ring},
                     {"message_bytes", each.message_bytes},
                     {"message_us", each.message_us}});
  figures.details["paths"] = std::move(paths);
}

void describe(TrainingFigures& figures, const ExchangePlan& plan, const CodingFigures& coding,
              const char* level) {
  const double steps = std::max(coding.steps, 1);
  auto& compression = figures.details[level];
  compression["nominal_bytes"] = plan.elements() * sizeof(float);
  compression["message_bytes"] = static_cast<double>(coding.message_bytes) / steps;
  compression["plain_bytes"] = static_cast<double>(coding.plain_bytes) / steps;
  compression["formula_bytes"] =
      coding.by_formula ? json(static_cast<double>(coding.formula_bytes) / steps) : json();
  compression["encode_us"] = coding.encode_us / steps;
  compression["decode_us"] = coding.decode_us / steps;
  compression["error_feedback"] = plan.codec.feedback;
}

void describe(TrainingFigures& figures, const StepPrediction& predicted) {
  figures.details["predicted"] = {{"computing_us", predicted.computing_us},
                                  {"exposed_us", predicted.exposed_us},
                                  {"sending_us", predicted.sending_us}};
}

void describe_memory(TrainingFigures& figures, std::size_t unit, std::size_t held,
                     std::size_t limit) {
  figures.details["memory"] = {{"unit_bytes", unit}, {"held_bytes", held}, {"limit_bytes", limit}};
}

}  // namespace dynamiccl
