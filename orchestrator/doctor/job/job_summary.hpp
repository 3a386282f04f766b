#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

// What the verdicts on a job that runs have in common.
namespace dynamiccl {

// A shorter time says nothing of a job that stands.
inline constexpr double kFewestSeconds = 3;
// Of the looks at a rank: it is where it mostly is.
inline constexpr double kMostly = 0.6;
// Of the time that a GPU's memory is in use, which NVML gives in whole percents: nothing runs, or a
// kernel that hangs. Healthy jobs over sockets show 1 %.
inline constexpr double kIdleGpu = 0.005;

/// What all looks at one rank say together.
struct RankSummary {
  const LiveRank* rank = nullptr;
  double inside = 0;     ///< of the looks that read a stack: in a call that waits for others
  double outside = 0;    ///< in none
  double cpu = 0;        ///< cores used
  double waiting = 0;    ///< of the time ready without a core
  double served = 1;     ///< of the time that it was ready: on a core
  double throttled = 0;  ///< of the time held back by its control group
  std::uint64_t io_bytes = 0;
  bool stands = false;              ///< in one and the same call in all looks
  std::uint64_t launched = 0;       ///< collectives, by the last answer of RAS; 0 = unknown
  bool launches = false;            ///< more of them from look to look
  bool counted = false;             ///< long enough that one can tell whether more come
  double gpu = -1;                  ///< most of its GPU's memory in use; below 0 = unknown
  double gpu_halves[2] = {-1, -1};  ///< its mean in the halves of the time
  CallKind kind = CallKind::outside;
  std::string call;       ///< that it stands in, else the one it was in most
  std::string meanwhile;  ///< outside: where it mostly was
};

using MaybeVerdict = std::optional<JobVerdict>;

template <class Predicate>
std::vector<const RankSummary*> those(const std::vector<RankSummary>& all, Predicate predicate) {
  std::vector<const RankSummary*> found;
  for (const auto& one : all)
    if (predicate(one)) found.push_back(&one);
  return found;
}

/// The numbers of these ranks.
std::vector<int> numbers_of(const std::vector<const RankSummary*>& some);

/// "all ranks stand"; where the job has ranks that are not seen "ranks 0 and 1 of 3 stand".
std::string all_do(const LiveJob& job, const std::string& deed);

/// " on node2"; "" = this machine.
std::string on_host(const std::string& host);

/// Adds what NCCL's RAS and NVML say in the looks.
void add_gpu(RankSummary& sum, const std::vector<RankLook>& looks);

/// Whether it waits for its GPU, or for NCCL on it.
bool needs_gpu(const RankSummary& one);

/// Whether nothing moves on the GPUs of these ranks, by RAS and NVML.
bool on_still_gpus(const std::vector<const RankSummary*>& some);

/// All ranks stand, and these in waiting for their GPUs: in a hang those stand in a collective's
/// kernel, which does not touch their memory. A step may be long, too.
JobVerdict standing_on_gpus(const LiveJob& job, const std::vector<const RankSummary*>& stand);

/// All wait for their GPUs, of which one works all the time and the others' wait in kernels for it.
MaybeVerdict find_busy_gpu(const LiveJob& job, const std::vector<RankSummary>& all);

}  // namespace dynamiccl
