#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "orchestrator/doctor/job/live_job.hpp"
#include "orchestrator/doctor/job/process_files.hpp"

namespace dynamiccl {

/// No rank is among what was looked for and can be read.
class NoRankHere : public Error {
 public:
  explicit NoRankHere(const std::string& message, bool is_sure = false,
                      std::vector<EndedProcess> over = {})
      : Error(ErrorKind::input, message), sure(is_sure), ended(std::move(over)) {}
  /// Nothing was hidden and no name may be a mistake: this machine has none of the job's ranks.
  bool sure = false;
  std::vector<EndedProcess> ended;  ///< below the launcher
};

/// The ranks of a job on this machine, their variables' world, and what its launcher has started
/// that is over: pids, numbers and names are filled, nothing else is.
/// @param named process ids (of a launcher, a rank or what started them), containers of Docker or
///              Podman, jobs of Slurm, or a variable with its value ("MASTER_PORT=29500",
///              which a launcher gives all ranks of one job): all of one job
/// @param of_several the job is on other machines, too, and so may some of `named` be
/// @throws NoRankHere where one names nothing here (`of_several`: all) or no rank is found: it says
///         what was looked for
///         Error(input) where processes cannot be read, with whose they are
LiveJob find_ranks(const std::vector<std::string>& named, bool of_several = false);

/// The same among these processes, below these.
LiveJob ranks_among(const std::vector<pid_t>& roots, const std::vector<ProcessStat>& all);

}  // namespace dynamiccl
