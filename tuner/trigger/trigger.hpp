#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// When a change of calls' latency is an alarm: constants of Trigger, with their reasons.
struct TriggerOptions {
  int block = 5;          ///< calls whose median is one observation: lone slow calls say nothing
  int reference = 20;     ///< observations from which level and spread are learnt
  int early = 5;          ///< observations of a level learnt anew after which gross changes count
  double early_sd = 0.5;  ///< least deviation of ln(latency) meanwhile
  double slack = 1;       ///< CUSUM: standard deviations that count as no change
  double threshold = 9;   ///< CUSUM: a change
  /// A change is an alarm when it makes calls 1.8 times as long or short: smaller ones, which
  /// machines make by themselves, seldom put settings in another order.
  double least_change = 0.6;  ///< of ln(latency)
  int lasting = 6;            ///< of the last `lasting` + 1 observations, those that show it
  int settling = 40;          ///< observations after which a smaller change is the new level
  double clip = 6;            ///< standard deviations that one observation may say at most
  double least_sd = 0.12;     ///< of ln(latency): machines change their pace by so much unasked
  double forgetting = 0.003;  ///< per observation: slow drifts move the level along
};

/// What the trigger says of a key after a call.
struct TriggerState {
  double cusum_score = 0;           ///< 1 = alarm
  double reconstruction_error = 0;  ///< of the last observation, standard deviations
  double congestion = 0;            ///< 0 to 1, the score of the slower side
  double interference = 0;          ///< share of bandwidth lost against the reference
  bool alarm = false;               ///< true once per change
  /// ln(latency) of the last call beyond the level; nullopt: the level is still learnt.
  std::optional<double> beyond_level;
};

/// Watches the latencies of one task key under one setting. A sequence model (level plus
/// first-order autoregression of its residuals, fitted online) predicts the next observation; a
/// two-sided CUSUM (Page 1954) on the standardised prediction error tells a change from noise.
/// Autocorrelation, which doubles an ordinary CUSUM's false alarms, is so taken out first. What is
/// surely a change is an alarm once it is large and has lasted; a small one becomes the level.
/// After an alarm the level is learnt anew. Constant memory; a few tens of nanoseconds per call.
class Trigger {
 public:
  explicit Trigger(const TriggerOptions& options = {});

  /// One call's latency; what is no positive number is left out.
  TriggerState add(Micros latency);
  [[nodiscard]] const TriggerState& state() const { return state_; }
  /// Another setting is in force: its level is another one.
  void restart();
  [[nodiscard]] std::int64_t calls() const { return calls_; }

 private:
  void learn_reference(double observation);
  void observe(double observation);
  /// Adds to the sums; @return whether that was an alarm, after which the level is learnt anew
  bool judge(double residual);
  /// Whether the last observations show a change that is worth an alarm
  [[nodiscard]] bool lasts() const;
  void settle();

  TriggerOptions options_;
  TriggerState state_;
  std::vector<double> block_;
  std::vector<double> reference_;
  std::vector<double> recent_;  ///< residuals of the last observations
  double level_ = 0;
  double sd_ = 0;
  double correlation_ = 0;  ///< of neighbouring residuals
  double last_residual_ = 0;
  double slow_score_ = 0;
  double fast_score_ = 0;
  double smooth_ = 0;  ///< residual over the last few observations
  std::int64_t calls_ = 0;
  int waiting_ = 0;     ///< observations since a change was sure that is no alarm
  bool again_ = false;  ///< a level was known before
};

}  // namespace dynamiccl
