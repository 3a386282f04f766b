#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/wire/record.hpp"
#include "orchestrator/experiment/protocol.hpp"

namespace dynamiccl {

/// The machine before a launch: counters, and under "window" what they did over a tenth of a second
/// in which nothing of the run's was running.
nlohmann::json quiet_window(const NoiseLimits& limits, int cores);

/// Waits until the machine has been quiet for a second, `most` at most, or for an interrupt.
/// @param window what the machine did over the next moment, as quiet_window() tells it
/// @returns what was beyond the limits at the end, as noise_flags() tells it; empty = quiet
std::vector<std::string> wait_for_quiet(const NoiseLimits& limits, int cores, Micros most,
                                        const std::function<nlohmann::json()>& window);
/// The same of this machine.
std::vector<std::string> wait_for_quiet(const NoiseLimits& limits, int cores, Micros most);

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

}  // namespace dynamiccl
