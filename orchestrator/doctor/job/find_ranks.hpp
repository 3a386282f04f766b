#pragma once

#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"
#include "orchestrator/doctor/job/process_files.hpp"

namespace dynamiccl {

/// The ranks of a job on this machine, their variables' world, and what its launcher has started
/// that is over: pids, numbers and names are filled, nothing else is.
/// @param named process ids (of a launcher, a rank or what started them), containers of Docker or
///              Podman, jobs of Slurm, or a variable with its value ("MASTER_PORT=29500",
///              which a launcher gives all ranks of one job): all of one job
/// @throws Error(input) where one names nothing here or no rank is found: it says what was looked
///         for, and whose the processes are that could not be read
LiveJob find_ranks(const std::vector<std::string>& named);

/// The same among these processes, below these.
LiveJob ranks_among(const std::vector<pid_t>& roots, const std::vector<ProcessStat>& all);

}  // namespace dynamiccl
