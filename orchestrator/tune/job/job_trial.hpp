#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/launch/process.hpp"
#include "orchestrator/run/held_folder.hpp"
#include "tuner/job/job_facts.hpp"
#include "tuner/job/job_watch.hpp"
#include "tuner/online/job_leader.hpp"

namespace dynamiccl {

/// Somebody's own command, and where its launches tell what they call.
struct JobCommand {
  std::vector<std::string> argv;
  /// Where everything about the job is kept, shared by all ranks of this host.
  const HeldFolder& out;
  /// In it: the settings file that every launch reads (nccl.conf) and a folder per launch.
  const HeldFolder& launches;
  std::string plugin;  ///< absolute path of the NCCL plugin, as the job sees it
  std::map<std::string, std::string> environment;  ///< added to the inherited one
  /// The library that tells what ranks call of MPI: next to the plugin.
  [[nodiscard]] std::string mpi_watcher() const;
  /// The library that makes them one host: next to the plugin.
  [[nodiscard]] std::string one_host_library() const;
  /// Makes ranks of this host one host to NCCL where it is in memory (docs/one-host.md), in trials
  /// and later: what DYNAMICCL_SHARED_FOLDER names, else a folder of `out`.
  /// @throws Error(input) for a name of several lines
  [[nodiscard]] std::string one_host_folder() const;
};

/// For which communicators a job's table is, and what a rank may know it by.
struct TableOrigin {
  unsigned ranks = 0;  ///< 0: any
  unsigned nodes = 0;  ///< as NCCL counts them; 0: any
  CallTableOrigin made;
};

/// What a launch is given.
struct TrialRequest {
  int number = 0;
  /// By which the ranks communicate. Of NCCL the plugin tells what they call, of MPI a library that
  /// is preloaded; of Gloo nothing.
  Backend library = Backend::nccl;
  bool whole = false;  ///< the command runs to its own end, and its time stands for the step
  /// NCCL's, of launch scope; LD_PRELOAD, which no file of NCCL's can set, goes with the command.
  std::map<std::string, std::string> variables;
  CallTable table{};       ///< per call, from the start
  TableOrigin origin;      ///< of the table
  double seconds = 60;     ///< from the job's start; longer is ended
  std::size_t warmup = 3;  ///< steps that are left out
  std::size_t steps = 12;  ///< that are measured before it is ended; 0: it runs to its own end
  /// Per-call settings are learnt after the steps were measured, for at most so many seconds; 0:
  /// no.
  double learn_seconds = 0;
  /// Steps that take so long and longer cannot win: nothing is learnt then, and the launch ends
  /// after the first of them.
  Micros hopeless_from{1e18};
  /// What a step of the job calls, where that is known: what repeats otherwise is none of its
  /// steps.
  JobWatch::StepCalls step_calls;
  bool learn_at_once = false;  ///< from the first call on, and to the job's end
  bool times_calls = true;     ///< the GPU's time of each call is taken
  JobLeaderOptions leader{};
};

/// What a launch brought.
struct JobTrialResult {
  std::string reason;           ///< why there is no step; "" = there is one
  bool heard = false;           ///< a rank has loaded the plugin
  bool without_gpu = false;     ///< it was not waited for longer: no GPU is here
  std::vector<double> step_us;  ///< after the warm-up, under the table from the start
  Micros step{};
  double spread = 0;
  std::size_t calls_per_step = 0;
  JobWatch::StepCalls step_calls;
  bool by_pauses = false;
  std::optional<JobFacts> facts;
  std::vector<MixEntry> mix;
  std::uint64_t calls = 0;
  /// What was learnt; nullopt: nothing, or nothing that was not slower.
  std::optional<CallTable> learnt;
  TableOrigin origin;  ///< of what was learnt, else of the largest communicator
  std::vector<TableEntry> entries;
  Micros learnt_step{};
  bool settled = false;  ///< there is no more to learn
  std::vector<DecisionRecord> decisions;
  std::vector<std::string> notes;  ///< of the leader
  std::string beyond_this_host;    ///< why no call's setting can be learnt; ""; see JobLeader
  LeaderCost cost;
  double seconds = 0;
  bool started = true;  ///< false: the command is not there or may not be run
  int exit_code = 0;
  int interrupted_by = 0;
  std::string output;         ///< end of the command's stderr
  bool ended_itself = false;  ///< before it was ended here
  /// Of the ranks while they had mapped nothing that NCCL is in or needs: no NCCL comes.
  std::optional<Backend> speaks;
  bool whole = false;      ///< `step` is the time of the whole command
  bool cut = false;        ///< ended after its first steps, which were hopeless
  bool disk_full = false;  ///< so that no rank could tell anything, as the reason says
  [[nodiscard]] bool failed() const { return ended_itself && exit_code != 0; }
  [[nodiscard]] bool ok() const { return reason.empty(); }
  /// Nothing was recorded, and it is known why: further launches are to be started otherwise.
  [[nodiscard]] bool is_recognised() const {
    return !heard && speaks && started && !failed() && interrupted_by == 0;
  }
};

/// The name of a job's own folder of one host in JobCommand::out.
inline constexpr const char* kOneHostBelow = "one-host";

/// The time of the whole command in a step's place.
void take_whole(JobTrialResult& result);

/// Starts the command once with these settings, looks on while it runs, ends it when enough was
/// seen, and leaves no process of it. Blocks; once at a time.
/// @throws Error(environment) when the command's folders have been exchanged, cannot be written to
/// or lie on a disk that is full
JobTrialResult run_trial(const JobCommand& command, const TrialRequest& request,
                         const std::function<void(const std::string&)>& on_output);

/// Where it is one of `out`, and not there yet.
/// @throws Error(environment) when it cannot be made
void make_one_host_folder(const JobCommand& command);

/// The settings file of a launch, as NCCL reads it (NCCL_CONF_FILE): ours first, as the first value
/// of a name counts, then the user's own file.
std::string conf_text(const std::map<std::string, std::string>& ours,
                      const std::string& users_text);
/// The file that NCCL would read without us: $NCCL_CONF_FILE, else ~/.nccl.conf; "": none.
std::string users_conf_path();
/// What it says; "": nothing.
/// @param whole with settings that an earlier `tune` wrote: who accompanies a job leaves it as it
/// is
std::string users_conf(bool whole = false);
/// Did an earlier `tune` write it?
bool users_conf_is_tuned();

/// Does the command start its ranks where this process's variables do not reach (containers, other
/// hosts)? Then the flags that it needs, for people; "" otherwise.
std::string goes_elsewhere(const JobCommand& command);

}  // namespace dynamiccl
