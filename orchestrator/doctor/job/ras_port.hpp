#pragma once

#include <functional>
#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// A rank whose process answers for NCCL's RAS, which all ranks of a job share.
struct RasTarget {
  int rank = 0;
  pid_t pid = 0;
  pid_t inner_pid = 0;  ///< as it sees itself, and RAS names it
  std::string host = "localhost";
  std::string port = "28028";
  int world = 0;  ///< ranks of the whole job; 0 = unknown
};

/// Where the RAS of a job's ranks on GPUs listens, by their variables (NCCL_RAS_ADDR).
std::vector<RasTarget> ras_targets(const LiveJob& job);

struct RasLook {
  std::vector<RasAnswer> answers;  ///< by the job's ranks where their processes are known
  std::string problem;             ///< why there are none
};

/// Asks NCCL's RAS for what each rank has launched (NCCL 2.28 and newer answer so, unless
/// NCCL_RAS_ENABLE is 0), in the network namespace of the ranks: call it in a thread of its own,
/// which stays there. Every process of every job of this user listens at the same port, so that an
/// answer counts if it names one of these. A host is asked by its address alone, as a name may take
/// long to look up. Blocking: three seconds at most. Never throws.
/// @param stopped asked ten times a second: whether nobody waits for it any longer
RasLook ask_ras(const std::vector<RasTarget>& targets, const std::function<bool()>& stopped);

/// Into the last looks of a job's ranks: what each has launched by now, which stays unknown where
/// nothing was answered; and which ranks are over.
void take_ras(LiveJob& job, RasLook look);

}  // namespace dynamiccl
