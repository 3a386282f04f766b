#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "containers/cluster/cluster_options.hpp"
#include "containers/cluster/node_report.hpp"
#include "containers/cluster/slurm.hpp"
#include "containers/cluster/slurm_queue.hpp"
#include "containers/command.hpp"
#include "containers/progress.hpp"
#include "core/vocabulary/json.hpp"
#include "profiles/detect/node_places.hpp"

namespace dynamiccl {

/// The nodes of a run: a list of hosts, the allocation around this process, or one that is asked of
/// Slurm when the first launch needs it and given back at the end. Not thread-safe.
class ClusterSession {
 public:
  /// @param slots_per_node ranks that a node of an allocation takes at most
  ClusterSession(ClusterOptions options, int slots_per_node);
  ~ClusterSession();
  ClusterSession(const ClusterSession&) = delete;
  ClusterSession& operator=(const ClusterSession&) = delete;

  [[nodiscard]] const ClusterOptions& options() const { return options_; }
  /// The nodes; without an allocation yet, nameless ones of the number asked for.
  [[nodiscard]] std::vector<ClusterNode> nodes() const;
  /// From now on nodes() are these of them alone, and hold() asks no others. They keep the order in
  /// which Slurm fills them, whichever order they are named in.
  /// Environments that are up stay where they are: stop them first.
  /// @param names of nodes that are there; empty = all
  void narrow_to(std::vector<std::string> names) { narrowed_ = std::move(names); }
  /// From now on no node is replaced or waited for when it is lost: who compares nodes by name says
  /// so.
  void keep_nodes();
  [[nodiscard]] const std::string& job() const { return allocation_.job; }

  /// So many launches are still to come, none of which takes longer than that: where each has a job
  /// of its own, these are asked for ahead.
  void expect(std::size_t launches, std::chrono::seconds longest) {
    queue_.expect(launches, longest);
  }
  /// A launch is over. Where each has a job of its own, the next hold() goes on to the next one.
  void launched() { spent_ = options_.job_per_launch(); }
  /// Why Slurm has ended, or is ending, the job that is held; "" = it has not. Asks for a while,
  /// but briefly where this program is to end itself (`interrupted`) or runs in that job.
  [[nodiscard]] std::string why_job_ended(bool interrupted) const;

  /// Makes the nodes ready: takes over an allocation that an earlier start of this run has left in
  /// the queue, or gets one, and asks every node whether it sees `folders` and the workers.
  /// Idempotent, quick when done before; an allocation that has ended meanwhile is asked for anew.
  /// @param folders must be the same on all nodes
  /// @param programs must be executable there
  /// @throws Error(environment) with what is wrong with which node
  void hold(const std::string& run_id, const std::vector<std::string>& folders,
            const std::vector<std::string>& programs, const Progress& progress);
  /// A launch has failed: the next hold() asks the nodes again. Where one no longer answers, an
  /// allocation of ours is given back for another, and hosts are waited for, for a minute and once.
  void doubt();
  /// What nodes() said in hold(), in their order; of those that were asked.
  [[nodiscard]] std::vector<NodeReport> reports() const;
  /// Asks nodes() on which of them the kernel has ended processes for want of memory since hold()
  /// asked them, or this did. @returns a clause that names them, "" = on none that answers
  [[nodiscard]] std::string ended_for_memory();
  /// Since hold(): some of nodes() does not see the folder that launches write into, so that what
  /// ranks measure comes by connections.
  [[nodiscard]] bool records_over_tcp() const;

  /// Where nodes() stand by the latency between them, for those of which nobody says it: measured
  /// once, when it is first asked for after hold(), whose progress follows and ends it. Empty where
  /// that tells nothing (fewer than three nodes, or all alike), see places_by_latency().
  [[nodiscard]] const NodePlaces& measured_places();

  /// argv that runs a command on a node.
  /// @param takes_input what comes to its stdin goes to the command's
  [[nodiscard]] std::vector<std::string> node_argv(const std::string& node,
                                                   const std::vector<std::string>& command,
                                                   bool takes_input = false) const;
  /// Runs a command on these nodes at once. What start-up files of the user print there is left
  /// out. @returns results in their order
  [[nodiscard]] std::vector<NodeResult> on_nodes(const std::vector<ClusterNode>& nodes,
                                                 const std::vector<std::string>& command,
                                                 const CommandOptions& options) const;
  /// Gives the allocation back, and the jobs that were asked for ahead, each whatever becomes of
  /// the other. @throws Error(environment) when Slurm keeps one
  void release();

 private:
  void release_allocation();
  void get_allocation(const std::string& run_id, const Progress& progress);
  /// @returns an allocation of the same run whose owner is dead
  [[nodiscard]] SlurmAllocation left_allocation(const std::string& run_id,
                                                const Progress& progress) const;
  /// Asks those of nodes() that have not said yet that they are well.
  void survey(const std::vector<std::string>& folders, const std::vector<std::string>& programs);
  /// A node that has been well before is so no more.
  [[nodiscard]] bool lost_one() const;
  /// After a survey that found problems where all had been well.
  void replace_nodes(const std::string& run_id, const std::vector<std::string>& folders,
                     const std::vector<std::string>& programs, const Progress& progress);

  ClusterOptions options_;
  int slots_per_node_;
  SlurmAllocation allocation_;
  SlurmQueue queue_;    ///< empty with ClusterJobs::one
  bool spent_ = false;  ///< the allocation has had its launch
  std::vector<std::string> narrowed_;
  std::map<std::string, NodeReport> reports_;  ///< by node
  std::vector<std::string> surveyed_;          ///< folders and programs of the last survey
  std::set<std::string> were_well_;            ///< in some survey of these
  bool waited_ = false;                        ///< for hosts that were lost
  bool slurm_was_away_ = false;                ///< and has been waited for
  bool keeps_nodes_ = false;
  std::vector<std::string> latency_of_;  ///< nodes that measured_places_ is of
  NodePlaces measured_places_;
  Progress progress_;  ///< of the last hold()
};

/// argv that runs a shell's command line on a host, without ever asking anybody for anything; that
/// line is one more word.
std::vector<std::string> remote_prefix(const ClusterOptions& options, const std::string& host);

}  // namespace dynamiccl
