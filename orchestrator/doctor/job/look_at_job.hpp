#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/job/job_verdict.hpp"
#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// What `doctor --job` found: the job, what is wrong with it, and what the looks at it took.
struct JobLook {
  LiveJob job;
  JobVerdict verdict;
  std::vector<JobRemark> remarks;
  int stacks = 0;          ///< taken of each rank
  bool by_gdb = false;     ///< of some ranks: see StackReader::takes_long()
  double stack_cpu_s = 0;  ///< of a core that they took in all
};

struct LookOptions {
  double hung_seconds = 4;            ///< after which a job that stands is reported
  double seconds = 11;                ///< after which the looking ends
  double pause_seconds = 0.6;         ///< from one stack of a rank to the next, or more
  std::function<bool()> interrupted;  ///< asked between looks; may be empty
  bool of_several = false;            ///< hosts of one job: this one may have no rank of it
};

/// Looks at a job from outside, several times: /proc, and a stack of every rank, for which each
/// stands still for some milliseconds. Changes nothing, leaves nothing. Blocking: as long as the
/// options say, less once a hang is sure.
/// @throws Error(input) where no rank is found; of several hosts that is a look without ranks,
/// whose
///         verdict says why, `partly` where some may be here all the same
JobLook look_at_job(const std::vector<std::string>& named, const LookOptions& options = {});

/// State, verdict, evidence and what to type.
std::string to_text(const JobVerdict& said);
nlohmann::json to_json(const JobVerdict& said);

/// Each with its fix below it.
std::string to_text(const std::vector<JobRemark>& remarks);
nlohmann::json to_json(const std::vector<JobRemark>& remarks);

std::string to_text(const JobLook& look);
nlohmann::json to_json(const JobLook& look);

}  // namespace dynamiccl
