#pragma once

#include <optional>
#include <string>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/units.hpp"
#include "core/wire/run_config.hpp"
#include "profiles/table_reader.hpp"

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

/// How often and how long; `cells` goes to the workers as it is.
struct RunProtocol {
  Protocol cells;
  /// Blocks; every group starts once per block (5 independent runs). With target_interval the
  /// blocks before the first look, and at least 6.
  int launches = 5;
  double target_interval = 0;  ///< relative half-width of the medians' 95 % interval; 0 = launches
  int max_launches = 40;       ///< with target_interval: no group gets more
  Micros time_budget;          ///< no block begins that would not end within it; 0 = none
  NoiseLimits noise;
  int retries = 1;        ///< further attempts of a launch that failed; each is stored
  Micros launch_timeout;  ///< 0 = made from the cells' time caps, see launch_timeout()
  Micros connect_timeout{30e6};
};

/// Reads [protocol] with [protocol.noise]; mistakes are noted in `root`.
void read_protocol(TableReader& root, RunProtocol& protocol);

/// The protocol as resolved, for run.protocol_json.
nlohmann::json to_json(const RunProtocol& protocol);
nlohmann::json to_json(const NoiseLimits& limits);
/// What to_json() made; what is not there is as ever.
NoiseLimits noise_limits_from_json(const nlohmann::json& limits);

/// Launches after which the protocol first looks at the intervals: all of them where it asks for no
/// interval, else at least 6 (core/statistics/verdict.hpp).
int first_launches(const RunProtocol& protocol);
/// Blocks a group may have.
int most_launches(const RunProtocol& protocol);
/// "5 launches", "6 to 40 launches, until the 95 % interval is within 5 %".
std::string launches_text(const RunProtocol& protocol);

/// What was asked for, as progress_of() takes it; nullopt for a fixed number of launches.
std::optional<StoppingRule> stopping_rule(const RunProtocol& protocol);

}  // namespace dynamiccl
