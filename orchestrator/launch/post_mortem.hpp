#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "orchestrator/launch/process.hpp"

namespace dynamiccl {

/// Processes that the kernel ended for want of memory: on the machine, and in this process's own
/// control group. nullopt where a counter cannot be read.
struct OutOfMemoryCounts {
  std::optional<std::uint64_t> machine;  ///< /proc/vmstat, of all control groups too
  std::optional<std::uint64_t> group;    ///< memory.events or memory.oom_control of the own group
};

OutOfMemoryCounts out_of_memory_counts();

/// The signal that ended a rank behind its launcher, which itself ends with an exit code: by what
/// Slurm's, Open MPI's and MPICH's launchers print, and by the code 128 + N of shells and engines.
/// 0 = none.
int signal_behind_launcher(const ProcessOutcome& outcome);

/// The code that a rank ended with by itself behind its launcher, as far as that tells it.
int exit_code_behind_launcher(const ProcessOutcome& outcome);

/// The ranks whose end first_failure() tells of: commands that are ranks themselves, or those that
/// its launcher names. Open MPI's and Slurm's do so. Empty: nobody says.
/// @param count of ranks
std::vector<int> ranks_behind(const ProcessOutcome& outcome, std::size_t count);

/// "" or a clause that says how many processes the kernel ended for want of memory between the two.
std::string out_of_memory_clause(const OutOfMemoryCounts& before, const OutOfMemoryCounts& after);

/// "" or a clause on an sshd that does not take so many logins at once.
/// @param said by ssh
std::string refused_login_clause(const std::string& said);

/// Does MPICH, or library_words_clause() of it, say that UCX did not find its peer's process id?
/// @param said by the launch's processes, or why it failed
bool is_unseen_peer(const std::string& said);

/// "" or a clause of what a library said last of why it does not start, in its own words: a
/// component that it has not, a network interface or a transport that is not there; or what its
/// words mean where they name no cause.
/// @param said by the launch's processes
std::string library_words_clause(const std::string& said);

/// What a launch that no rank came to measure in may have failed by.
struct FailedStart {
  Backend backend;
  std::string said;  ///< by its processes
  /// Of the machine and the network that ranks start in, by the kernel's index: before the launch
  /// and after it; the same where they are another's.
  std::map<unsigned, std::string> interfaces_before;
  std::map<unsigned, std::string> interfaces_after;
  std::string stays;  ///< an interface to name in the advice, or a word for one
};

/// "" or a clause on a network interface that was gone when a library opened it; where a library
/// that may be over UCX failed without a word, on those that came or went meanwhile.
std::string vanished_interface_clause(const FailedStart& start);

/// One line per rank that did not measure all its cells: how many it has, and which it was in.
std::vector<std::string> unfinished_ranks(const RunConfig& config,
                                          const std::vector<RecordFile>& files);

}  // namespace dynamiccl
