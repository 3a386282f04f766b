#include <algorithm>

#include "core/vocabulary/splitmix64.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kAny = "any";
// What waits in a machine's stead still ends within a launch.
constexpr double kMostPaceMs = 60'000;
constexpr double kMostSlowFactor = 1000;

std::string pace_misfit(const TrainingSpec& spec) {
  if (spec.slow_worker != kAnyWorker && spec.slow_factor <= 1)
    return "slow_worker: says who is slowed; say how much by slow_factor";
  return "";
}

using Spec = TrainingSpec;
constexpr SettingRow kPaceRows[] = {
    setting<&Spec::pace>(
        "pace", "milliseconds that a step's computation takes at least, by waiting; 0: as it comes",
        0, kMostPaceMs),
    setting<&Spec::slow_factor>(
        "slow_factor", "times as long that computation takes on a slowed worker, by waiting", 1,
        kMostSlowFactor),
    SettingRow{"slow_worker",
               "number of the slowed worker, or any: in each step one drawn at random",
               [](TrainingSpec& spec, const SettingRow& row, const std::string& value) {
                 spec.slow_worker = kAnyWorker;
                 if (value != kAny) read_setting(row, value, spec.slow_worker);
               },
               [](const TrainingSpec& spec) {
                 return spec.slow_worker == kAnyWorker ? std::string(kAny)
                                                       : std::to_string(spec.slow_worker);
               },
               0, kUnbounded}};

}  // namespace

SettingPart pace_part() { return {kPaceRows, pace_misfit, /*of_task=*/true}; }

bool is_slowed(const TrainingSpec& spec, int workers, int worker, std::uint64_t step,
               std::uint64_t seed) {
  if (spec.slow_factor <= 1) return false;
  if (spec.slow_worker != kAnyWorker) return worker == spec.slow_worker;
  const std::uint64_t drawn = splitmix64_mixed(seed ^ (step * kSplitmix64Step));
  return drawn % static_cast<std::uint64_t>(workers) == static_cast<std::uint64_t>(worker);
}

double waited_us(const TrainingSpec& spec, double computed_us) {
  return std::max(computed_us, spec.pace * 1000) * spec.slow_factor;
}

}  // namespace dynamiccl
