#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/action/action_space.hpp"
#include "tuner/job/job_facts.hpp"
#include "tuner/job/job_watch.hpp"

namespace dynamiccl {

/// What a user does not want to pay for a faster step.
struct JobConstraints {
  std::optional<double> gpu_memory_mib;  ///< more of a GPU's memory than NCCL's default takes
  std::optional<int> host_cores;         ///< cores of a host that NCCL's helper threads may fill
  bool same_bits = false;  ///< sums in the default's order: every result stays the same bit by bit
};

/// Must the order of sums stay, and can settings change it here? Then no call's settings are
/// learnt.
bool keeps_order(const JobFacts& facts, const JobConstraints& constraints);

/// NCCL's launch-scope settings that may matter for a job where it runs: helper threads and sockets
/// where its messages go through sockets, one host where they do so within one machine
/// (JobFacts::one_host), queue pairs over InfiniBand, channels and buffers elsewhere. All knobs are
/// resources; targets are "env.NAME".
/// @param taken variables that the user sets himself: they are his
/// @param left_out set to what a constraint or the user's own variables took away, for people
ActionSpace launch_space(const JobFacts& facts, const JobConstraints& constraints,
                         const std::set<std::string>& taken, std::vector<std::string>& left_out);

/// ln(step) that is expected of every arm, from the share of the step that its collectives take and
/// from what helper threads and channels brought where it was measured (2 and 4 GPUs over sockets,
/// reports/measured). The default's is ln(default_step).
/// @param communication share of the step that lies in collectives, 0 to 1
std::vector<double> launch_prior(const ActionSpace& space, const JobFacts& facts,
                                 Micros default_step, double communication);

/// Share of the job's step that its collectives take on the GPU; nullopt where no call was timed.
std::optional<double> communication_share(const std::vector<MixEntry>& mix, Micros step);

/// The mix's largest part: the collective and size that most of the bytes belong to.
struct MainTraffic {
  Collective collective = Collective::allreduce;
  Bytes size;
};
std::optional<MainTraffic> main_traffic(const std::vector<MixEntry>& mix);

/// Is the number that ranks tell of a call that of a collective which a library has settings for?
bool has_collective(std::size_t function);
/// Such a number (CallTable, ToldCall) as the vocabulary's.
Collective collective_of(std::size_t function);

}  // namespace dynamiccl
