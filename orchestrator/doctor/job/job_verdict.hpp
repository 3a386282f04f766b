#pragma once

#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// Pure: what the looks at a job's ranks say, the surest first. The list, and what each rests on:
///   stopped      a signal has stopped a rank, or a debugger holds it
///   ended        a rank is over while others stand in a call
///   unreachable  all stand, and bytes to a peer are not acknowledged
///   other-call   all stand in calls, not in the same
///   same-call    all stand in the same collective
///                where they wait for their GPUs: NCCL's RAS has counted no more launches
///                meanwhile, and NVML finds the GPUs' memory untouched
///   messages     all stand in messages that nobody sends or receives
///   held         others stand in a call; it is outside and does nothing: asleep, reading, locked
///   waits-for    others stand in a call; it is outside and works, so this may end by itself, or
///                it stands in waiting for its GPU, which works while the others do nothing
///   starved      the others wait for it, and it waits for a core
///   throttled    its control group's limit holds it back, or all of theirs
///   late         the others wait for it in calls again and again; what it does meanwhile
///   gpu-wait     all stand in waiting for their GPUs, and no more is known
///   moving       nothing of these: the job goes on
///   idle         no rank is in a call and none works
///   unseen       no stack can be read, and nothing else tells
/// Of what a job has left, verdict(const LoggedJob&) says the like.
JobVerdict verdict(const LiveJob& job);

/// "rank 1", "ranks 1, 2 and 3".
std::string ranks_text(const std::vector<int>& ranks);

/// Whether a hang is as sure as it gets, so that looking on tells no more.
bool is_settled(const JobVerdict& verdict, const LiveJob& job);

/// Causes that can be seen from outside and need not show yet, each with its fix.
std::vector<JobRemark> remarks(const LiveJob& job);

}  // namespace dynamiccl
