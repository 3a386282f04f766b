#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "containers/cluster/host_list.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Who starts the ranks on a cluster's nodes.
DYN_NAMED_ENUM(ClusterStart, "way to start ranks", '-',
               ssh,      ///< a list of hosts: the library's launcher, or ours, by ssh
               srun,     ///< job steps of one Slurm allocation
               mpirun);  ///< the library's own launcher in one Slurm allocation

/// How what the ranks measure comes to this machine.
enum class RecordsWay {
  automatic,  ///< through the folder where every node sees it, else by connections
  folder,     ///< which all nodes must share
  tcp,        ///< connections to this machine
};
template <>
struct NameTable<RecordsWay> {
  static constexpr std::string_view what = "way of records";
  static constexpr std::array entries{Named{RecordsWay::automatic, "auto"},
                                      Named{RecordsWay::folder, "folder"},
                                      Named{RecordsWay::tcp, "tcp"}};
};

/// Of how many jobs of Slurm the launches of a run are.
DYN_NAMED_ENUM(
    ClusterJobs, "order of Slurm's jobs", '-',
    one,        ///< job steps of one allocation
    afterany,   ///< a job for each launch, which waits for the end of the one before
    singleton,  ///< the same, one of this user's jobs of that name at a time, of whichever run
    array);     ///< tasks of a job array, one at a time

/// [cluster] of an experiment: which machines besides this one, and how ranks get there.
struct ClusterOptions {
  ClusterStart start = ClusterStart::ssh;
  std::vector<ClusterNode> hosts;  ///< with ssh
  /// Program that is called in ssh's place, as `PROGRAM HOST COMMAND...`, the words of COMMAND
  /// being one line for a shell there; "" = ssh.
  std::string remote_shell;
  RecordsWay records = RecordsWay::automatic;
  int nodes = 0;           ///< of Slurm; 0 = all of the allocation this process runs in
  int ranks_per_node = 0;  ///< 0 = equal shares of all nodes
  bool dealt = false;      ///< neighbours in rank are on different nodes, with ssh
  int gpus_per_node = 0;
  std::string partition;
  std::string time_limit;            ///< as Slurm takes it: "30", "2:00:00"; "" = the partition's
  std::vector<std::string> options;  ///< further ones of salloc or sbatch: "--account=physics"
  ClusterJobs jobs = ClusterJobs::one;
  int jobs_ahead = 100;  ///< that wait in Slurm's queue at most, where each launch has one
  /// Container engine of the nodes, as it is called there: {"docker"}, {"podman"},
  /// {"docker", "--host", "unix:///run/other.sock"}; {"pyxis"} = Slurm's plugin (plans alone).
  std::vector<std::string> engine = {"docker"};
  std::string interface;  ///< the ranks' network, "" = that of the default route
  int wait_s = 86400;     ///< how long to wait for an allocation

  [[nodiscard]] bool slurm() const { return start != ClusterStart::ssh; }
  [[nodiscard]] bool job_per_launch() const { return slurm() && jobs != ClusterJobs::one; }
};

/// What of it decides what is measured, for the ids of groups: the names of nodes do not.
inline std::string placement_key(const ClusterOptions& options, std::size_t nodes) {
  std::string key = std::string(name_of(options.start)) + " on " + std::to_string(nodes) + " nodes";
  if (options.ranks_per_node > 0) key += ", " + std::to_string(options.ranks_per_node) + " a node";
  if (options.dealt) key += ", dealt in turn";
  // In which order they are asked for is all the same to what is measured.
  if (options.job_per_launch()) key += ", a job each";
  if (!options.interface.empty()) key += " by " + options.interface;
  return key;
}

}  // namespace dynamiccl
