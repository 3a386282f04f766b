#include "tuner/agents/kernel_means.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace dynamiccl {
namespace {

constexpr double kOtherValue = 0.1;       // likeness of settings, for each knob
constexpr double kResourceScale = 1;      // doublings of a knob's number
constexpr double kSizeScale = 2;          // doublings of the message
constexpr double kRanksScale = 1;         // doublings
constexpr double kOtherCollective = 0.1;  // likeness of places
constexpr double kOtherRegime = 0.3;      // likeness of places
constexpr double kPriorWeight = 1;        // looks that "as the others" counts for
constexpr double kOwnWeight = 3;          // a setting's own look against the mean of all
constexpr double kOtherAlgorithm = 0.15;  // ln(time): libraries choose their own with care
constexpr double kDoubt = 0.5;            // ln(time) that an unknown setting may be better by
constexpr double kNoise = 0.15;           // the same of one that was looked at once
constexpr int kMostTries = 2;

double squared(double x) { return x * x; }

/// ln(time) against its task's level: what its own looks say, and those of others.
double log_time_of(double own, int tries, double mean) {
  return (kOwnWeight * tries * own + mean) / (kOwnWeight * tries + 1);
}

}  // namespace

std::vector<SettingFeature> features_of(const ActionSpace& space, const Action& action) {
  const std::hash<std::string> digest;
  std::vector<SettingFeature> features;
  for (std::size_t k = 0; k < action.size(); ++k)
    if (action[k] != 0)
      features.push_back({digest(space.knobs()[k].name), digest(space.knobs()[k].values[action[k]]),
                          space.magnitude(k, action[k])});
  std::sort(features.begin(), features.end(),
            [](const SettingFeature& a, const SettingFeature& b) { return a.knob < b.knob; });
  return features;
}

double setting_likeness(const std::vector<SettingFeature>& a,
                        const std::vector<SettingFeature>& b) {
  double likeness = 1;
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() || right != b.end()) {
    if (right == b.end() || (left != a.end() && left->knob < right->knob)) {
      likeness *= kOtherValue;
      ++left;
    } else if (left == a.end() || right->knob < left->knob) {
      likeness *= kOtherValue;
      ++right;
    } else {
      if (left->value != right->value)
        likeness *=
            left->log2 && right->log2
                ? std::max(kOtherValue,
                           std::exp(-0.5 * squared((*left->log2 - *right->log2) / kResourceScale)))
                : kOtherValue;
      ++left;
      ++right;
    }
  }
  return likeness;
}

double place_likeness(const RegimeKey& a, const RegimeKey& b) {
  const TaskKey& x = a.task;
  const TaskKey& y = b.task;
  if (x.backend != y.backend || x.architecture != y.architecture) return 0;
  double distance = squared((x.bin.log2 - y.bin.log2) / kSizeScale);
  if (x.group_size != y.group_size)
    distance += squared(std::log2(static_cast<double>(x.group_size) / y.group_size) / kRanksScale);
  return (x.collective == y.collective ? 1 : kOtherCollective) *
         (a.regime == b.regime ? 1 : kOtherRegime) * std::exp(-0.5 * distance);
}

std::vector<double> expected_before_looks(const Task& task) {
  const auto& arms = task.space->arms();
  std::vector<double> expected(arms.size(), 0);
  const bool modelled = task.prior_log_us.size() == arms.size();
  // What was measured elsewhere says of every algorithm how it stands.
  if (modelled && is_placed(task)) return task.prior_log_us;
  for (std::size_t a = 0; a < arms.size(); ++a)
    for (std::size_t k = 0; k < task.space->implementation_knobs(); ++k)
      if (arms[a][k] != 0) expected[a] += kOtherAlgorithm;
  if (!modelled) return expected;
  const double level = std::accumulate(task.prior_log_us.begin(), task.prior_log_us.end(), 0.0) /
                       static_cast<double>(arms.size());
  for (std::size_t a = 0; a < arms.size(); ++a)
    expected[a] += task.prior_trust * std::clamp(task.prior_log_us[a] - level, -2.0, 2.0);
  return expected;
}

KernelMeans::Entry KernelMeans::fresh(const Task& task) {
  const std::vector<double> expected = expected_before_looks(task);
  Entry entry;
  for (std::size_t a = 0; a < expected.size(); ++a)
    entry.arms.push_back({features_of(*task.space, task.space->arms()[a]), expected[a]});
  return entry;
}

KernelMeans::Entry& KernelMeans::entry(const Task& task) {
  const auto found = entries_.find(task.key);
  return found != entries_.end() ? found->second
                                 : entries_.emplace(task.key, fresh(task)).first->second;
}

void KernelMeans::learn(const Task& task, std::size_t arm, const Trial& trial) {
  Entry& owner = entry(task);
  Arm& tried = owner.arms[arm];
  ++owner.evaluations;
  if (!trial.ok || !(trial.time.count() > 0)) {
    if (arm != 0) tried.failed = true;
    return;
  }
  Look look{task.key, &owner, tried.features, std::log(trial.time.count()) - tried.prior, 0, {}};
  tried.own += (look.log_us - tried.own) / ++tried.tries;
  add(std::move(look));
  settle();
}

void KernelMeans::add(Look look) {
  look.likeness.clear();
  for (const Look& other : looks_)
    look.likeness.push_back(place_likeness(look.key, other.key) *
                            setting_likeness(look.features, other.features));
  look.likeness.push_back(1);
  looks_.push_back(std::move(look));
}

void KernelMeans::settle() {
  constexpr int kRounds = 6;
  const std::size_t count = looks_.size();
  std::vector<double> mean(count, 0);
  for (int round = 0; round < kRounds; ++round) {
    std::map<Entry*, std::pair<double, int>> sums;
    for (std::size_t i = 0; i < count; ++i) {
      auto& [sum, looks] = sums[looks_[i].owner];
      sum += looks_[i].log_us - mean[i];
      ++looks;
    }
    for (const auto& [entry, sum] : sums) entry->level = sum.first / sum.second;
    for (Look& look : looks_) look.beyond_level = look.log_us - look.owner->level;
    std::vector<double> weight(count, kPriorWeight);
    std::fill(mean.begin(), mean.end(), 0);
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        const double alike = looks_[i].likeness[j];
        mean[i] += alike * looks_[j].beyond_level;
        weight[i] += alike;
        if (i == j) continue;
        mean[j] += alike * looks_[i].beyond_level;
        weight[j] += alike;
      }
    for (std::size_t i = 0; i < count; ++i) mean[i] /= weight[i];
  }
}

KernelMeans::Estimate KernelMeans::estimate(const RegimeKey& key, const Entry& entry) const {
  const std::size_t arms = entry.arms.size();
  for (std::size_t i = entry.alike.size(); i < looks_.size(); ++i) {
    const double place = place_likeness(key, looks_[i].key);
    auto& row = entry.alike.emplace_back(arms, 0);
    for (std::size_t a = 0; place > 0 && a < arms; ++a)
      row[a] = place * setting_likeness(entry.arms[a].features, looks_[i].features);
  }
  Estimate known{std::vector<double>(arms, 0), std::vector<double>(arms, 0)};
  for (std::size_t i = 0; i < looks_.size(); ++i)
    for (std::size_t a = 0; a < arms; ++a) {
      known.log_time[a] += entry.alike[i][a] * looks_[i].beyond_level;
      known.weight[a] += entry.alike[i][a];
    }
  for (std::size_t a = 0; a < arms; ++a) {
    const Arm& arm = entry.arms[a];
    known.log_time[a] =
        arm.prior + log_time_of(arm.own - entry.level, arm.tries,
                                known.log_time[a] / (known.weight[a] + kPriorWeight));
  }
  return known;
}

std::vector<double> KernelMeans::promises(const Entry& entry, const Estimate& known) {
  double best = INFINITY;
  for (std::size_t a = 0; a < entry.arms.size(); ++a)
    if (!entry.arms[a].failed) best = std::min(best, known.log_time[a]);
  std::vector<double> promises(entry.arms.size(), 0);
  for (std::size_t a = 0; a < promises.size(); ++a) {
    const Arm& arm = entry.arms[a];
    if (arm.failed || arm.tries >= kMostTries) continue;
    const double doubt = arm.tries > 0 ? kNoise / std::sqrt(arm.tries)
                                       : kDoubt / std::sqrt(1 + known.weight[a] / kPriorWeight);
    promises[a] = best - known.log_time[a] + doubt;
  }
  return promises;
}

std::vector<PlannedChoice> KernelMeans::plan(const std::vector<const Task*>& tasks,
                                             std::size_t most) {
  for (const Task* task : tasks) entry(*task);
  std::vector<Estimate> known;
  for (const Task* task : tasks) known.push_back(estimate(task->key, entries_.at(task->key)));
  std::vector<bool> taken(tasks.size(), false);
  std::vector<PlannedChoice> chosen;
  while (chosen.size() < most) {
    double highest = options_.stop_gain;
    PlannedChoice next{tasks.size(), {}};
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      if (taken[t]) continue;
      const std::vector<double> promise = promises(entries_.at(tasks[t]->key), known[t]);
      for (std::size_t a = 0; a < promise.size(); ++a) {
        const double here = promise[a] + 1e-4 * random_.uniform();  // equals in any order
        if (promise[a] <= 0 || here <= highest) continue;
        highest = here;
        next = {t, {a, 1, a != 0}};
      }
    }
    if (next.task == tasks.size()) break;
    chosen.push_back(next);
    taken[next.task] = true;
    // What is measured at the same time is not worth measuring nearby.
    const Task& owner = *tasks[next.task];
    const auto& features = entries_.at(owner.key).arms[next.choice.arm].features;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      const double place = taken[t] ? 0 : place_likeness(tasks[t]->key, owner.key);
      const auto& arms = entries_.at(tasks[t]->key).arms;
      for (std::size_t a = 0; place > 0 && a < arms.size(); ++a)
        known[t].weight[a] += place * setting_likeness(arms[a].features, features);
    }
  }
  return chosen;
}

Choice KernelMeans::act(const Task& task) {
  const std::vector<PlannedChoice> next = plan({&task}, 1);
  return finished(task) || next.empty() ? Choice{recommend(task), 1, false} : next.front().choice;
}

bool KernelMeans::finished(const Task& task) const {
  if (task.space->arms().size() <= 1) return true;
  const auto found = entries_.find(task.key);
  if (found == entries_.end() || found->second.evaluations == 0) return false;
  if (options_.max_evaluations > 0 && found->second.evaluations >= options_.max_evaluations)
    return true;
  const std::vector<double> left = promises(found->second, estimate(task.key, found->second));
  return *std::max_element(left.begin(), left.end()) < options_.stop_gain;
}

std::size_t KernelMeans::recommend(const Task& task) const {
  const auto found = entries_.find(task.key);
  const Entry unmet = found == entries_.end() ? fresh(task) : Entry{};
  const Entry& entry = found == entries_.end() ? unmet : found->second;
  const Estimate known = estimate(task.key, entry);
  std::size_t best = 0;
  for (std::size_t a = 1; a < known.log_time.size(); ++a)
    if (!entry.arms[a].failed && known.log_time[a] < known.log_time[best]) best = a;
  return known.log_time[best] < known.log_time[0] - options_.stop_gain ? best : 0;
}

void KernelMeans::reopen(const RegimeKey& key) {
  std::vector<Look> looks;
  looks.swap(looks_);
  for (Look& look : looks)
    if (look.key != key) add(std::move(look));
  entries_.erase(key);
  for (auto& [other, entry] : entries_) entry.alike.clear();
  settle();
}

}  // namespace dynamiccl
