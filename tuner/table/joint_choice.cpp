#include "tuner/table/joint_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace dynamiccl {
namespace {

using Launch = std::map<std::string, std::string>;

struct Timed {
  ActionSettings setting;  ///< with the channels that NCCL took where none were asked for
  bool standard = false;   ///< no call setting was asked for
  bool untouched = false;  ///< nothing at all was asked for
  double us = 0;
  int launches = 0;
};
/// By size, then by launch knobs: every call setting's time.
using Times = std::map<std::uint64_t, std::map<Launch, std::vector<Timed>>>;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// A raised ceiling needs a cap at every size: what NCCL did by itself is said as a cap.
ActionSettings explicit_setting(const ScopedObservation& seen) {
  ActionSettings setting = seen.setting;
  const auto knob = [&](const char* name) -> std::string {
    const auto found = seen.setting.call_knobs.find(name);
    return found == seen.setting.call_knobs.end() ? "" : found->second;
  };
  std::string channels = knob("max_ctas");
  if (channels.empty() && seen.channels > 0) channels = std::to_string(seen.channels);
  if (channels.empty()) channels = knob("min_ctas");
  setting.call_knobs.erase("max_ctas");
  setting.call_knobs.erase("min_ctas");
  if (!channels.empty()) setting.call_knobs["channels"] = channels;
  const auto slash = setting.algorithm.find('/');
  if (slash != std::string::npos) {
    setting.call_knobs["protocol"] = setting.algorithm.substr(slash + 1);
    setting.algorithm.resize(slash);
  }
  return setting;
}

Times times_of(const std::vector<const ScopedObservation*>& observations) {
  struct Key {
    std::uint64_t size;
    Launch launch;
    std::string algorithm;
    Launch call;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::pair<std::vector<double>, const ScopedObservation*>> grouped;
  for (const ScopedObservation* seen : observations) {
    auto& group = grouped[{seen->size.count(), seen->setting.launch_knobs, seen->setting.algorithm,
                           seen->setting.call_knobs}];
    group.first.push_back(seen->median_us);
    group.second = seen;
  }
  Times times;
  for (const auto& [key, group] : grouped)
    times[key.size][key.launch].push_back(
        {explicit_setting(*group.second),
         group.second->setting.algorithm == "library" && group.second->setting.call_knobs.empty(),
         group.second->setting == ActionSettings{}, median(group.first),
         static_cast<int>(group.first.size())});
  return times;
}

/// What is hardly faster than the library's own choice is not worth a row.
const Timed* best_of(const std::vector<Timed>& timed) {
  constexpr double kWorthIt = 0.97;
  const Timed* best = nullptr;
  const Timed* standard = nullptr;
  for (const Timed& one : timed) {
    if (best == nullptr || one.us < best->us) best = &one;
    if (one.standard) standard = &one;
  }
  return standard != nullptr && best->us > kWorthIt * standard->us ? standard : best;
}

const Timed* default_of(const std::map<Launch, std::vector<Timed>>& by_launch) {
  const auto found = by_launch.find({});
  if (found == by_launch.end()) return nullptr;
  for (const Timed& one : found->second)
    if (one.untouched) return &one;
  return nullptr;
}

/// Sum of ln(default / best); nullopt where a size was not measured under the launch setting.
std::optional<double> score(const Times& times, const Launch& launch, const JointOptions& options) {
  constexpr double kBroken =
      1e3;  // more than any gain: such a setting is taken only for want of others
  double sum = 0;
  for (const auto& [size, by_launch] : times) {
    const Timed* standard = default_of(by_launch);
    if (standard == nullptr) continue;
    const auto found = by_launch.find(launch);
    if (found == by_launch.end()) return std::nullopt;
    const double ratio = best_of(found->second)->us / standard->us;
    sum -= std::log(ratio);
    if (size >= options.guarded_from.count() && ratio > 1 + options.tolerance) sum -= kBroken;
  }
  return sum;
}

void choose(const RegimeKey& key, const Times& times, const JointOptions& options,
            std::vector<TableEntry>& entries) {
  std::map<Launch, double> scores;
  for (const auto& [size, by_launch] : times)
    for (const auto& [launch, timed] : by_launch)
      if (!scores.contains(launch))
        if (const auto value = score(times, launch, options)) scores[launch] = *value;
  if (scores.empty()) return;
  const Launch launch =
      std::max_element(scores.begin(), scores.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  bool all_standard = launch.empty();
  for (const auto& [size, by_launch] : times)
    if (by_launch.contains(launch))
      all_standard = all_standard && best_of(by_launch.at(launch))->standard;
  for (const auto& [size, by_launch] : times) {
    const Timed* standard = default_of(by_launch);
    if (standard == nullptr) continue;
    const Timed* best = best_of(by_launch.at(launch));
    TableEntry entry;
    entry.key = key;
    entry.key.task.bin = SizeBin::of(Bytes(size));
    entry.size = Bytes(size);
    // Other sizes raise the ceiling: what NCCL took by itself must be said as a cap.
    entry.setting = all_standard ? ActionSettings{} : best->setting;
    entry.evidence.default_us = standard->us;
    entry.evidence.tuned_us = best->us;
    if (best->us > standard->us * (1 + options.tolerance))
      entry.flags.emplace_back("launch_trade_off");
    std::vector<std::string> parts;
    if (entry.setting.algorithm != "library") parts.push_back(entry.setting.algorithm);
    for (const auto& [name, value] : entry.setting.call_knobs) parts.push_back(name + "=" + value);
    for (const auto& [name, value] : launch) parts.push_back(name + "=" + value);
    entry.arm = parts.empty() ? "library" : join(parts, " ");
    entries.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<TableEntry> choose_jointly(const std::vector<ScopedObservation>& observations,
                                       const JointOptions& asked) {
  JointOptions options = asked;
  if (options.largest) options.guarded_from = Bytes(0);
  std::map<RegimeKey, std::vector<const ScopedObservation*>> by_key;
  for (const ScopedObservation& seen : observations) {
    if (seen.median_us <= 0 || (options.largest && *options.largest < seen.size)) continue;
    RegimeKey key = seen.key;
    key.task.bin = {};
    by_key[key].push_back(&seen);
  }
  std::vector<TableEntry> entries;
  for (const auto& [key, seen] : by_key) choose(key, times_of(seen), options, entries);
  return entries;
}

}  // namespace dynamiccl
