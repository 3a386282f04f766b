#pragma once

#include <map>
#include <vector>

#include "core/statistics/fast_random.hpp"
#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// Name of the agent that this file is of, as --agent takes it.
inline constexpr const char* kMeans = "means";
/// Who searches where nobody is named: the simplest that none is surely better than over stored
/// sweeps (reports/measured/agents-2026-11).
inline constexpr const char* kDefaultAgent = kMeans;

/// What a setting changes: digests of a knob's name and value. What is left alone is not among it.
struct SettingFeature {
  std::size_t knob = 0;
  std::size_t value = 0;
  std::optional<double> log2;  ///< where the value is a number
};
/// In the order of the knobs' digests.
std::vector<SettingFeature> features_of(const ActionSpace& space, const Action& action);

/// How alike two settings are expected to stand to the rest of their tasks, 0 to 1: a factor for
/// each knob that they differ in.
double setting_likeness(const std::vector<SettingFeature>& a, const std::vector<SettingFeature>& b);

/// The same of one setting in two places: falls with the distance of sizes and ranks, and where
/// collective or regime differ. 0 between libraries.
double place_likeness(const RegimeKey& a, const RegimeKey& b);

/// Is the prior what was measured in other places (places.hpp)? It is believed whole.
inline bool is_placed(const Task& task) {
  return task.prior_trust == 1 && !task.prior_log_us.empty();
}
/// ln(time) that is expected of each arm before any look, up to a constant: what other places or an
/// analytic model say, and that libraries choose their own algorithm with care.
std::vector<double> expected_before_looks(const Task& task);

/// Kernel-weighted means: what a setting is expected to take is the mean of all looks, each weighed
/// by how alike its place and its setting are (Nadaraya 1964, Watson 1964), beyond what its task
/// takes on average. What little weight speaks of may be much better: measured next is where the
/// lowest that a setting may take promises most against the best that its task has.
class KernelMeans final : public Agent {
 public:
  explicit KernelMeans(const AgentOptions& options) : options_(options), random_(options.seed) {}
  [[nodiscard]] std::string_view name() const override { return kMeans; }
  Choice act(const Task& task) override;
  [[nodiscard]] bool plans() const override { return true; }
  std::vector<PlannedChoice> plan(const std::vector<const Task*>& tasks, std::size_t most) override;
  void learn(const Task& task, std::size_t arm, const Trial& trial) override;
  [[nodiscard]] bool finished(const Task& task) const override;
  [[nodiscard]] std::size_t recommend(const Task& task) const override;
  void reopen(const RegimeKey& key) override;

 private:
  struct Arm {
    std::vector<SettingFeature> features;
    double prior = 0;  ///< ln(time) that is expected of it before any look, up to a constant
    double own = 0;    ///< mean ln(us) of its looks, beyond the prior
    int tries = 0;
    bool failed = false;
  };
  struct Entry {
    std::vector<Arm> arms;
    double level = 0;  ///< ln(us) of what its looks share
    int evaluations = 0;
    mutable std::vector<std::vector<double>>
        alike;  ///< by look and arm, as far as it was asked for
  };
  struct Look {
    RegimeKey key;
    Entry* owner;  ///< of the key
    std::vector<SettingFeature> features;
    double log_us = 0;             ///< beyond what the prior expected
    double beyond_level = 0;       ///< of it, beyond its task's level
    std::vector<double> likeness;  ///< to the looks before it and to itself
  };
  /// By arm.
  struct Estimate {
    std::vector<double> log_time;  ///< against the task's level
    std::vector<double> weight;    ///< of the looks that it rests on
  };
  [[nodiscard]] static Entry fresh(const Task& task);
  Entry& entry(const Task& task);
  [[nodiscard]] Estimate estimate(const RegimeKey& key, const Entry& entry) const;
  /// By arm: ln(time) that looking at it may save, 0 and below where it is closed.
  [[nodiscard]] static std::vector<double> promises(const Entry& entry, const Estimate& known);
  void add(Look look);
  /// Makes each task's level anew: what its looks have in common beyond their settings.
  void settle();

  AgentOptions options_;
  FastRandom random_;
  std::map<RegimeKey, Entry> entries_;
  std::vector<Look> looks_;
};

}  // namespace dynamiccl
