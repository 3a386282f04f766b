#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_options.hpp"
#include "containers/progress.hpp"

namespace dynamiccl {

/// Nodes that Slurm has given.
struct SlurmAllocation {
  std::string job;  ///< its number
  std::vector<ClusterNode> nodes;
  bool ours = false;      ///< made by this program, which gives it back
  std::string task = {};  ///< "12_3" of an array's, which scancel knows by this name alone; else ""

  [[nodiscard]] const std::string& cancelled_by() const { return task.empty() ? job : task; }
};

/// What jobs of this program carry as their comment, so that they are found again whoever is left:
/// the run, and the process that waits for it on which host.
struct SlurmMark {
  std::string run;
  std::string host;
  std::string owner;  ///< owner_token()

  bool operator==(const SlurmMark&) const = default;
};
std::string mark_text(const SlurmMark& mark);
std::optional<SlurmMark> parse_mark(const std::string& comment);
/// The mark of this process.
SlurmMark own_mark(const std::string& run);

/// A job of ours in the queue.
struct SlurmJob {
  std::string id;
  std::string state;  ///< "PENDING", "RUNNING", ...
  std::string name;
  std::string reason;  ///< why it waits
  SlurmMark mark;

  [[nodiscard]] bool waits() const { return state == "PENDING" || state == "CONFIGURING"; }
};
/// Lines of `squeue --format=kQueueFormat`; those of others are left out.
inline constexpr const char* kQueueFormat = "%i|%T|%j|%r|%k";
std::vector<SlurmJob> parse_queue(const std::string& text);
/// Jobs of this user that carry our mark, each task of an array by itself. @throws
/// Error(environment) when Slurm does not answer
std::vector<SlurmJob> own_jobs();

/// "2(x2),1" -> 2, 2, 1. @throws Error(environment) for anything else
std::vector<int> parse_counts(const std::string& text);

/// Why this machine cannot ask Slurm for anything; nullopt when it can.
std::optional<std::string> slurm_unavailable_reason();

/// Takes from this process's environment what would change where srun puts ranks, or how their
/// output looks (SLURM_DISTRIBUTION, SLURM_LABELIO): steps are as this program says.
void forget_step_defaults();

/// The allocation that this process runs in; nullopt outside of any.
/// @throws Error(environment) when it runs in one that Slurm's variables do not tell of, or whose
/// nodes are of several kinds
std::optional<SlurmAllocation> surrounding_allocation();

/// argv that asks for an allocation which lives until it is cancelled.
std::vector<std::string> allocation_argv(const ClusterOptions& options, int slots_per_node,
                                         const SlurmMark& mark);

/// argv that submits jobs which hold the nodes of one launch each until they are cancelled, or for
/// `held_s`: with ClusterJobs::array `count` of them, else one.
/// @param after that job has to end before; "" = none
/// @param held_s seconds, or a word in their place where it is only shown
std::vector<std::string> submission_argv(const ClusterOptions& options, int slots_per_node,
                                         const SlurmMark& mark, int count, const std::string& after,
                                         const std::string& held_s);

/// Waits until the allocation is there, at most options.wait_s.
/// @throws Error(environment) with Slurm's own words, or when interrupted
SlurmAllocation allocate(const ClusterOptions& options, int slots_per_node, const SlurmMark& mark,
                         const Progress& progress);

/// The nodes of a running job, with as many slots each.
/// @throws Error(environment) where they are fewer than options.nodes, and as nodes_of_job
std::vector<ClusterNode> whole_nodes(const std::string& job, const ClusterOptions& options,
                                     int slots_per_node);

/// The nodes of a running job. @throws Error(environment)
std::vector<ClusterNode> nodes_of_job(const std::string& job);

/// Whether the job runs, by Slurm, which is asked for so long where it does not answer.
/// @throws Error(environment) when it has not answered, or when interrupted
bool job_runs(const std::string& job, std::chrono::seconds timeout, const Progress& progress);

/// For how many seconds a job has run, by Slurm; 0 where it does not say.
long run_time_s(const std::string& job);
/// Seconds of Slurm's "5:07", "02:05:07" and "1-02:05:07"; 0 of anything else.
long slurm_seconds(const std::string& text);

/// One clause on why a job, or all that runs in it, has come to an end without this program: its
/// time limit, a job that goes before, a node; "" while Slurm says that it runs as it should.
/// @param timeout how long to ask while the job is COMPLETING, which says nothing of why: until
/// its last process is gone, which this one may be
std::string why_job_ended(const std::string& job, std::chrono::seconds timeout,
                          const Progress& progress = {});
/// As long as Slurm leaves processes between TERM and KILL (KillWait, 30 s where nobody has set
/// it), and some more.
inline constexpr std::chrono::seconds kUntilJobIsGone{45};
/// For a job whose last process may be this one, or of which nobody waits to hear.
inline constexpr std::chrono::seconds kMomentOfEnding{2};

/// The same of what `scontrol --oneliner show job` says of the job.
std::string ending_of(const std::string& job, const std::string& details);

/// The number by which Slurm knows a task of an array, "12_3", once it runs; of others their own.
std::string job_number(const std::string& job);

/// How many nodes a job has asked for; 0 where Slurm does not say.
int asked_nodes(const std::string& job);

/// Waits until a job in the queue runs, at most options.wait_s.
/// @returns false when it has ended instead
/// @throws Error(environment) when it still waits, or when interrupted
bool wait_for_job(const std::string& job, const ClusterOptions& options, const Progress& progress);

/// Ends the steps of a job that runs; the job stays.
void end_steps(const std::string& job);

/// The array that a task belongs to, "12" of "12_3" and "12_[4-9%1]"; of others their own number.
std::string array_of(const std::string& job);

/// Cancels a job, or all tasks of an array, and waits until it is gone, so long at most.
/// @throws Error(environment) when it stays, or when Slurm does not answer
void cancel_job(const std::string& job, std::chrono::seconds timeout = std::chrono::seconds(30));

/// The variables by which launchers know that they are inside an allocation.
std::map<std::string, std::string> allocation_variables(const std::string& job,
                                                        const std::vector<ClusterNode>& nodes);

/// Version, partition and switches as far as Slurm knows them, for provenance.
std::map<std::string, std::string> slurm_facts(const std::string& job);

/// Jobs of ours whose owners on this host are dead are cancelled.
/// @returns one line per job; none where this machine belongs to no cluster
/// @throws Error(environment) when Slurm does not answer
std::vector<std::string> clean_jobs();

}  // namespace dynamiccl
