#include "benchmarks/transport_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

using Parameters = std::array<double, 6>;

TransportModel model_of(const Parameters& logs) {
  TransportModel model;
  model.alpha0_us = std::exp(logs[0]);
  model.beta0_max = std::exp(logs[1]);
  model.alpha1_us = std::exp(logs[2]);
  model.beta1_max = std::exp(logs[3]);
  model.channel_limit = std::exp(logs[4]);
  model.chunk_limit = std::exp(logs[5]);
  return model;
}

double transport_error(const Parameters& logs, const std::vector<TransportPoint>& points) {
  const TransportModel model = model_of(logs);
  double sum = 0;
  for (const TransportPoint& point : points) {
    const double r = std::log(point.bytes_per_us / combined_bandwidth(model, point.knobs));
    sum += r * r;
  }
  return std::sqrt(sum / static_cast<double>(points.size()));
}

/// Pattern search: a step per parameter, halved where neither direction helps.
double search(Parameters& logs, const std::vector<TransportPoint>& points) {
  double error = transport_error(logs, points);
  Parameters step;
  step.fill(1.0);
  for (int round = 0; round < 400 && *std::max_element(step.begin(), step.end()) > 1e-4; ++round) {
    for (std::size_t p = 0; p < logs.size(); ++p) {
      bool moved = false;
      for (const double direction : {1.0, -1.0}) {
        Parameters trial = logs;
        trial[p] += direction * step[p];
        const double trial_error = transport_error(trial, points);
        if (trial_error < error) {
          logs = trial;
          error = trial_error;
          moved = true;
          break;
        }
      }
      step[p] *= moved ? 1.5 : 0.5;
    }
  }
  return error;
}

}  // namespace

TransportFit fit_transport(const std::vector<TransportPoint>& points) {
  if (points.size() < 6)
    throw Error(ErrorKind::input,
                "the transport model has six constants: give at least six measured points");
  double fastest = 0;
  for (const TransportPoint& point : points) fastest = std::max(fastest, point.bytes_per_us);
  TransportFit best;
  best.relative_error = std::numeric_limits<double>::infinity();
  for (const double alpha : {1.0, 10.0})
    for (const double headroom : {1.2, 4.0})
      for (const double channels : {8.0, 64.0}) {
        Parameters logs{std::log(alpha),    std::log(fastest * headroom),
                        std::log(0.1),      std::log(fastest * headroom * 4),
                        std::log(channels), std::log(4e6)};
        const double error = search(logs, points);
        if (error < best.relative_error) best = {model_of(logs), error};
      }
  return best;
}

double unimodal_share(const std::vector<TransportPoint>& points, double tolerance) {
  using Line = std::vector<std::pair<double, double>>;
  std::map<std::array<double, 3>, Line> lines;
  for (const TransportPoint& p : points) {
    constexpr double kVaried = -1;
    lines[{kVaried, p.knobs.threads, p.knobs.chunk}].emplace_back(p.knobs.channels, p.bytes_per_us);
    lines[{p.knobs.channels, kVaried, p.knobs.chunk}].emplace_back(p.knobs.threads, p.bytes_per_us);
    lines[{p.knobs.channels, p.knobs.threads, kVaried}].emplace_back(p.knobs.chunk, p.bytes_per_us);
  }
  int total = 0;
  int unimodal = 0;
  for (auto& [fixed, line] : lines) {
    if (line.size() < 3) continue;
    std::sort(line.begin(), line.end());
    ++total;
    double peak = 0;
    double valley = std::numeric_limits<double>::infinity();
    bool fell = false;
    bool rose_again = false;
    for (const auto& [knob, bandwidth] : line) {
      peak = std::max(peak, bandwidth);
      if (bandwidth < peak * (1 - tolerance)) {
        fell = true;
        valley = std::min(valley, bandwidth);
      }
      if (fell && bandwidth > valley * (1 + tolerance)) rose_again = true;
    }
    unimodal += rose_again ? 0 : 1;
  }
  return total == 0 ? 1 : static_cast<double>(unimodal) / total;
}

}  // namespace dynamiccl
