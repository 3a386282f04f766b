// Does a recurrent model watch the recorded calls better than the trigger that ships, whose
// sequence model is a level plus a first-order autoregression? Trains small gated recurrent units
// (Cho et al., arXiv 1406.1078) on half of tests/tuner/traces and judges both on the other half,
// then the other way round, so that every trace is held out once:
//   recurrent_trigger [SEED]
// Two ways to use the units: a *predictor* of the next observation, whose errors go where the
// autoregression's go (the same CUSUM and the same rule of what is worth an alarm), and a
// *detector* that is taught where changes were planted. A detector's threshold is the lowest with
// which it has no more false alarms on its training half than the shipped trigger has there. The
// shipped trigger's constants were chosen on all traces, which is to its advantage.
#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "core/statistics/descriptive.hpp"
#include "tuner/trigger/latency_trace.hpp"
#include "tuner/trigger/trigger.hpp"

using namespace dynamiccl;

namespace {

constexpr int kUnits = 8;
constexpr int kInputs = 2;
constexpr std::size_t kWindow = 100;  ///< observations of an episode
constexpr std::size_t kBlock = 5;     ///< calls of an observation, as the trigger's
constexpr std::size_t kWithin = 50;   ///< calls within which a change is to be noticed
constexpr int kEpisodes = 60000;

using Vector = Eigen::Matrix<double, kUnits, 1>;
using Input = Eigen::Matrix<double, kInputs, 1>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Weights, or their gradients: of update gate, reset gate and candidate, and of the output.
struct Weights {
  Eigen::Matrix<double, 3 * kUnits, kInputs> in = decltype(in)::Zero();
  Eigen::Matrix<double, 3 * kUnits, kUnits> again = decltype(again)::Zero();
  Eigen::Matrix<double, 3 * kUnits, 1> bias = decltype(bias)::Zero();
  Vector out = Vector::Zero();
  double out_bias = 0;

  /// All of them, one after the other.
  template <class F>
  void each(Weights& other, F&& function) {
    const auto block = [&](auto& own, auto& others) {
      for (Eigen::Index i = 0; i < own.size(); ++i) function(own.data()[i], others.data()[i]);
    };
    block(in, other.in);
    block(again, other.again);
    block(bias, other.bias);
    block(out, other.out);
    function(out_bias, other.out_bias);
  }
};

struct Moment {
  Input x;
  Vector before, update, reset, candidate, recurrent;
};

/// One step of the units; `h` becomes the next state.
Moment advance(const Weights& w, const Input& x, Vector& h) {
  Moment now{x, h, {}, {}, {}, {}};
  const Eigen::Matrix<double, 3 * kUnits, 1> drive = w.in * x + w.bias;
  const Eigen::Matrix<double, 3 * kUnits, 1> loop = w.again * h;
  now.update = (drive + loop).head<kUnits>().unaryExpr(&sigmoid);
  now.reset = (drive + loop).segment<kUnits>(kUnits).unaryExpr(&sigmoid);
  now.recurrent = loop.tail<kUnits>();
  now.candidate = (drive.tail<kUnits>() + now.reset.cwiseProduct(now.recurrent)).array().tanh();
  h = (1 - now.update.array()) * now.candidate.array() + now.update.array() * h.array();
  return now;
}

/// @param slope of the loss by the state after `now`; becomes that by the state before
void go_back(const Weights& w, const Moment& now, Vector& slope, Weights& gradient) {
  const Eigen::Array<double, kUnits, 1> s = slope.array();
  const auto z = now.update.array();
  const auto r = now.reset.array();
  const auto n = now.candidate.array();
  const Eigen::Array<double, kUnits, 1> of_candidate = s * (1 - z) * (1 - n * n);
  Eigen::Matrix<double, 3 * kUnits, 1> of_drive, of_loop;
  of_drive.head<kUnits>() = s * (now.before.array() - n) * z * (1 - z);
  of_drive.segment<kUnits>(kUnits) = of_candidate * now.recurrent.array() * r * (1 - r);
  of_drive.tail<kUnits>() = of_candidate;
  of_loop = of_drive;
  of_loop.tail<kUnits>() = of_candidate * r;
  gradient.in += of_drive * now.x.transpose();
  gradient.bias += of_drive;
  gradient.again += of_loop * now.before.transpose();
  slope = (s * z).matrix() + w.again.transpose() * of_loop;
}

/// ln(latency) beyond the level that the trigger learns, medians of so many calls.
class Observations {
 public:
  Observations() { restart(); }
  void restart() {
    TriggerOptions never;
    never.threshold = 1e9;
    level_ = Trigger(never);
    block_.clear();
  }
  /// @returns an observation after the last call of a block, once the level is known
  std::optional<double> add(Micros latency) {
    const auto beyond = level_.add(latency).beyond_level;
    if (!beyond) return std::nullopt;
    block_.push_back(*beyond);
    if (block_.size() < kBlock) return std::nullopt;
    const double observation = median(block_);
    block_.clear();
    return observation;
  }

 private:
  Trigger level_;
  std::vector<double> block_;
};

Input input_of(double now, double before) {
  constexpr double kScale = 0.5, kMost = 4;
  return {std::clamp(now / kScale, -kMost, kMost),
          std::clamp((now - before) / kScale, -kMost, kMost)};
}

enum class Use { predictor, detector };

/// Watches as the trigger does, with recurrent units for the autoregression, or as a classifier.
class RecurrentTrigger {
 public:
  RecurrentTrigger(const Weights& weights, Use use, double threshold)
      : weights_(weights), use_(use), threshold_(threshold) {}

  bool add(Micros latency) {
    const auto seen = observations_.add(latency);
    if (!seen) return false;
    const double error = *seen - predicted_;
    advance(weights_, input_of(*seen, last_), state_);
    last_ = *seen;
    const double output = weights_.out.dot(state_) + weights_.out_bias;
    predicted_ = output;
    recent_.push_back(*seen);
    if (recent_.size() > static_cast<std::size_t>(options_.lasting) + 1) recent_.pop_front();
    const bool alarm = use_ == Use::detector ? detects(output) : errors_tell(error);
    if (alarm || waiting_ >= options_.patience) restart();
    return alarm;
  }

 private:
  void restart() { *this = RecurrentTrigger(weights_, use_, threshold_); }

  bool detects(double output) {
    sure_ = output > threshold_ ? sure_ + 1 : 0;
    waiting_ = output > 0 ? waiting_ + 1 : 0;
    return sure_ >= 2;
  }

  /// The shipped trigger's rule.
  bool errors_tell(double error) {
    // Spread of the errors, from the first ones.
    if (errors_.size() < static_cast<std::size_t>(options_.reference)) {
      errors_.push_back(error);
      spread_ = std::max(options_.least_sd, 1.5 * standard_deviation(errors_));
      return false;
    }
    const double standardised = std::clamp(error / spread_, -options_.clip, options_.clip);
    slow_ = std::clamp(slow_ + standardised - options_.slack, 0.0, options_.threshold);
    fast_ = std::clamp(fast_ - standardised - options_.slack, 0.0, options_.threshold);
    const bool sure = std::max(slow_, fast_) >= options_.threshold;
    waiting_ = sure ? waiting_ + 1 : 0;
    const double side = slow_ >= fast_ ? 1 : -1;
    return sure && std::count_if(recent_.begin(), recent_.end(), [&](double residual) {
                     return side * residual >= options_.least_change;
                   }) >= options_.lasting;
  }

  Weights weights_;
  Use use_;
  double threshold_;
  TriggerOptions options_;
  Observations observations_;
  Vector state_ = Vector::Zero();
  double last_ = 0, predicted_ = 0, slow_ = 0, fast_ = 0, spread_ = 1;
  int waiting_ = 0, sure_ = 0;
  std::deque<double> recent_;
  std::vector<double> errors_;
};

/// What is taught in one go: observations, and whether they come after a change.
struct Episode {
  std::vector<double> seen;
  std::vector<bool> changed;
};

/// A stretch of a trace from a random call on, with a change planted in half of them.
Episode episode_of(const LatencyTrace& trace, bool plant, std::mt19937_64& random) {
  const std::size_t calls = kBlock * (kWindow + 20);
  const std::size_t from =
      std::uniform_int_distribution<std::size_t>(0, trace.codes.size() - calls - 1)(random);
  const std::size_t at = std::uniform_int_distribution<std::size_t>(kBlock * 40, calls)(random);
  // 1.8 to 5 times as long, or as short.
  double factor = std::exp(std::uniform_real_distribution<double>(0.6, 1.6)(random));
  if (random() % 2 == 0) factor = 1 / factor;
  Episode episode;
  Observations observations;
  for (std::size_t i = 0; i < calls; ++i) {
    const bool changed = plant && i >= at;
    const auto seen =
        observations.add(Micros(trace.latency(from + i).count() * (changed ? factor : 1)));
    if (!seen) continue;
    episode.seen.push_back(*seen);
    episode.changed.push_back(changed && i >= at + kBlock);
  }
  return episode;
}

/// A recorded neighbour's arrival.
Episode load_episode(const LatencyTrace& trace) {
  Episode episode;
  Observations observations;
  const std::size_t calls = std::min(trace.codes.size(), *trace.load_at + 2 * kWithin);
  const std::size_t from = *trace.load_at > 500 ? *trace.load_at - 500 : 0;
  for (std::size_t i = from; i < calls; ++i)
    if (const auto seen = observations.add(trace.latency(i))) {
      episode.seen.push_back(*seen);
      episode.changed.push_back(i >= *trace.load_at + 2 * kBlock);
    }
  return episode;
}

/// Adds the slopes of the episode's loss.
void teach(const Weights& weights, Use use, const Episode& episode, Weights& gradient) {
  std::vector<Moment> moments;
  std::vector<double> slopes;
  std::vector<Vector> states;
  Vector h = Vector::Zero();
  double before = 0;
  for (std::size_t t = 0; t < episode.seen.size(); ++t) {
    moments.push_back(advance(weights, input_of(episode.seen[t], before), h));
    before = episode.seen[t];
    states.push_back(h);
    const double output = weights.out.dot(h) + weights.out_bias;
    if (use == Use::detector) {
      slopes.push_back(sigmoid(output) - (episode.changed[t] ? 1 : 0));
    } else {
      const double next = t + 1 < episode.seen.size() ? episode.seen[t + 1] : output;
      slopes.push_back(std::clamp(output - next, -1.0, 1.0));  // Huber's
    }
  }
  Vector slope = Vector::Zero();
  for (std::size_t t = moments.size(); t-- > 0;) {
    gradient.out += slopes[t] * states[t];
    gradient.out_bias += slopes[t];
    slope += slopes[t] * weights.out;
    go_back(weights, moments[t], slope, gradient);
  }
}

/// Adam (arXiv 1412.6980) over episodes of the given traces.
Weights train(const std::vector<const LatencyTrace*>& steady,
              const std::vector<const LatencyTrace*>& loaded, Use use, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.3);
  Weights weights, first, second;
  weights.each(first, [&](double& own, double&) { own = normal(random); });
  // Of a detector's: recorded neighbours, as many planted changes, and the rest without either.
  constexpr int kBatch = 8, kOfLoad = 2;
  for (int step = 1; step <= kEpisodes / kBatch; ++step) {
    Weights gradient;
    for (int i = 0; i < kBatch; ++i) {
      const bool from_load = use == Use::detector && i < kOfLoad;
      teach(weights, use,
            from_load ? load_episode(*loaded[random() % loaded.size()])
                      : episode_of(*steady[random() % steady.size()],
                                   use == Use::detector && i < 2 * kOfLoad, random),
            gradient);
    }
    const double rate =
        0.01 * std::min(1.0, 2.0 * (1 - static_cast<double>(step) * kBatch / kEpisodes));
    const double warm_first = 1 - std::pow(0.9, step), warm_second = 1 - std::pow(0.999, step);
    gradient.each(first, [&](double& g, double& m) {
      g /= kBatch * static_cast<double>(kWindow);
      m = 0.9 * m + 0.1 * g;
    });
    gradient.each(second, [](double& g, double& m) { m = 0.999 * m + 0.001 * g * g; });
    Weights moved = first;
    moved.each(second, [&](double& m, double& v) {
      m = rate * (m / warm_first) / (std::sqrt(v / warm_second) + 1e-8);
    });
    weights.each(moved, [](double& w, double& by) { w -= by; });
  }
  return weights;
}

using Watch = std::function<bool(Micros)>;
using Maker = std::function<Watch()>;

struct Judged {
  std::size_t calls = 0, alarms = 0;
  std::size_t neighbours = 0, neighbours_noticed = 0;
  std::size_t planted = 0, planted_noticed = 0;
  std::vector<double> delays;  ///< calls until a planted change was noticed
};

void judge_steady(const LatencyTrace& trace, const Maker& make, Judged& judged) {
  const Watch watch = make();
  for (std::size_t i = 0; i < trace.codes.size(); ++i)
    judged.alarms += watch(trace.latency(i)) ? 1 : 0;
  judged.calls += trace.codes.size();
}

/// @returns calls after the change until the alarm, 0 = none within so many
std::size_t delay_of(const Watch& watch, const LatencyTrace& trace, std::size_t from,
                     std::size_t at, double factor, std::size_t within) {
  for (std::size_t i = from; i < at; ++i) watch(trace.latency(i));
  for (std::size_t i = 0; i < within && at + i < trace.codes.size(); ++i)
    if (watch(Micros(trace.latency(at + i).count() * factor))) return i + 1;
  return 0;
}

void judge_planted(const LatencyTrace& trace, const Maker& make, std::uint64_t seed,
                   Judged& judged) {
  constexpr std::size_t kBefore = 500, kLongest = 500;
  std::mt19937_64 random(seed);
  for (const double factor : {2.0, 3.0, 0.5, 1.0 / 3}) {
    for (int turn = 0; turn < 20; ++turn) {
      const std::size_t at = std::uniform_int_distribution<std::size_t>(
          kBefore, trace.codes.size() - kLongest)(random);
      const std::size_t delay = delay_of(make(), trace, at - kBefore, at, factor, kLongest);
      ++judged.planted;
      judged.planted_noticed += delay > 0 && delay <= kWithin ? 1 : 0;
      judged.delays.push_back(delay > 0 ? static_cast<double>(delay)
                                        : static_cast<double>(kLongest));
    }
  }
}

void judge_neighbour(const LatencyTrace& trace, const Maker& make, Judged& judged) {
  ++judged.neighbours;
  judged.neighbours_noticed += delay_of(make(), trace, 0, *trace.load_at, 1, kWithin) > 0 ? 1 : 0;
}

Maker shipped() {
  return [] {
    auto trigger = std::make_shared<Trigger>();
    return [trigger](Micros latency) { return trigger->add(latency).alarm; };
  };
}

Maker recurrent(const Weights& weights, Use use, double threshold) {
  return [=] {
    auto trigger = std::make_shared<RecurrentTrigger>(weights, use, threshold);
    return [trigger](Micros latency) { return trigger->add(latency); };
  };
}

std::vector<LatencyTrace> recorded(const std::string& name) {
  const std::string path = std::string(DYNAMICCL_SOURCE_DIR "/tests/tuner/traces/") + name;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("xz -dc '" + path + "'").c_str(), "r"),
                                                   pclose);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), got);
  return parse_traces(text, path);
}

/// The traces of one half: every library and size is in both.
std::vector<const LatencyTrace*> half_of(const std::vector<LatencyTrace>& all, std::size_t which) {
  std::vector<const LatencyTrace*> half;
  for (std::size_t i = which; i < all.size(); i += 2) half.push_back(&all[i]);
  return half;
}

/// The lowest threshold with no more alarms on these than `most`; so high that it never alarms
/// where there is none.
double threshold_for(const Weights& weights, const std::vector<const LatencyTrace*>& steady,
                     std::size_t most) {
  for (double threshold = -1; threshold <= 15; threshold += 0.5) {
    Judged judged;
    for (const LatencyTrace* trace : steady)
      judge_steady(*trace, recurrent(weights, Use::detector, threshold), judged);
    if (judged.alarms <= most) return threshold;
  }
  return 1e9;
}

void say(const std::string& name, const Judged& judged) {
  fmt::print(
      "| {} | {} of {} | {:.2f} | {} of {} | {} of {} ({:.1f} %) | {:.0f} | {:.0f} |\n", name,
      judged.alarms, judged.calls,
      1e5 * static_cast<double>(judged.alarms) / static_cast<double>(judged.calls),
      judged.neighbours_noticed, judged.neighbours, judged.planted_noticed, judged.planted,
      100.0 * static_cast<double>(judged.planted_noticed) / static_cast<double>(judged.planted),
      median(judged.delays), quantile(judged.delays, 0.95));
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const auto steady = recorded("stationary.bin.xz");
  const auto loaded = recorded("load.bin.xz");
  constexpr std::array kThresholds{-1.0, 0.0, 1.0, 2.0, 3.0};
  Judged of_shipped, of_predictor, of_detector;
  std::array<Judged, kThresholds.size()> by_threshold;
  for (const std::size_t fold : {0U, 1U}) {
    const auto learnt = half_of(steady, fold), learnt_load = half_of(loaded, fold);
    const auto held = half_of(steady, 1 - fold), held_load = half_of(loaded, 1 - fold);
    const Weights predictor = train(learnt, learnt_load, Use::predictor, seed);
    const Weights detector = train(learnt, learnt_load, Use::detector, seed);
    Judged most;
    for (const LatencyTrace* trace : learnt) judge_steady(*trace, shipped(), most);
    const double threshold = threshold_for(detector, learnt, most.alarms);
    fmt::print(stderr, "half {}: threshold {} ({} alarms of the shipped one in training)\n", fold,
               threshold, most.alarms);
    const auto judge = [&](const Maker& make, Judged& judged) {
      for (std::size_t i = 0; i < held.size(); ++i) {
        judge_steady(*held[i], make, judged);
        judge_planted(*held[i], make, 1000 * seed + i, judged);
      }
      for (const LatencyTrace* trace : held_load) judge_neighbour(*trace, make, judged);
    };
    judge(shipped(), of_shipped);
    judge(recurrent(predictor, Use::predictor, 0), of_predictor);
    judge(recurrent(detector, Use::detector, threshold), of_detector);
    for (std::size_t i = 0; i < kThresholds.size(); ++i)
      judge(recurrent(detector, Use::detector, kThresholds[i]), by_threshold[i]);
  }
  fmt::print(
      "| trigger | alarms in calls without a change | per 100,000 | recorded neighbours within {0} "
      "calls | "
      "planted changes within {0} calls | delay, median | delay, 95 % "
      "|\n|---|---|---|---|---|---|---|\n",
      kWithin);
  say("autoregression (shipped)", of_shipped);
  say("recurrent predictor", of_predictor);
  say("recurrent detector", of_detector);
  for (std::size_t i = 0; i < kThresholds.size(); ++i)
    say(fmt::format("the same, threshold {}", kThresholds[i]), by_threshold[i]);
}
