#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/record.hpp"
#include "core/units.hpp"

namespace dynamiccl {

/// What a launch's surroundings may do before it counts as noisy, fixed in the experiment before
/// anything is measured. Shares are of the whole machine, 0 to 1; 1 switches a share's limit off.
struct NoiseLimits {
  double busy = 0.25;    ///< CPU time that others use: before the launch, and during its cells
  double load = 0.5;     ///< others' runnable tasks per core before the launch
  double steal = 0.02;   ///< CPU time that a hypervisor gave to others
  double psi_cpu = 0.2;  ///< time in which a task waited for a CPU before the launch
  double psi_memory = 0.05;
  double psi_io = 0.25;
  int throttled = 0;   ///< periods in which a control group's limit stopped it
  Micros wait{300e3};  ///< how long a launch waits for a quiet machine before it starts anyway
  double gpu_capped = 0.05;  ///< of a cell's time, in which heat or power held a GPU's clocks back
};

/// The machine before a launch: counters, and under "window" what they did over a tenth of a second
/// in which nothing of the run's was running.
nlohmann::json quiet_window(const NoiseLimits& limits, int cores);

/// What was beyond the limits, one sentence each; empty = quiet. Takes readings of counters alone,
/// so that no time can have a say in it.
/// @param before quiet_window() before the launch
/// @param during noise_between() over the launch
/// @param of_ranks what the ranks read over their cells ("noise" of their transport records)
std::vector<std::string> noise_flags(const nlohmann::json& before, const nlohmann::json& during,
                                     const std::vector<nlohmann::json>& of_ranks,
                                     const NoiseLimits& limits, int cores);

/// The ranks' readings in their records, without anything else of them. "gpu_capped_share": of the
/// cell in which the rank's GPU was held back most; absent without a GPU that tells.
std::vector<nlohmann::json> noise_of_ranks(const std::vector<RecordFile>& files);

/// For run.protocol_json.
nlohmann::json to_json(const NoiseLimits& limits);
/// What to_json() made; what is not there is as ever.
NoiseLimits noise_limits_from_json(const nlohmann::json& limits);

}  // namespace dynamiccl
