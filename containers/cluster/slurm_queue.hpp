#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>

#include "containers/cluster/slurm.hpp"

namespace dynamiccl {

/// Jobs of a run in Slurm's queue, one for each launch: Slurm starts one after the other, each on
/// nodes of its own choice, and whoever asks for next() gets them in this order. They hold their
/// nodes until they are cancelled, or for as long as a launch can take and kSpare: what a killed
/// program leaves comes to an end by itself. Not thread-safe.
class SlurmQueue {
 public:
  /// @param options.jobs not ClusterJobs::one, else it is never asked
  SlurmQueue(ClusterOptions options, int slots_per_node)
      : options_(std::move(options)), slots_per_node_(slots_per_node) {}

  /// From a job's start until its launch begins: one that has run for longer is let go for the
  /// next.
  static constexpr std::chrono::seconds kStart{300};
  /// What a job holds its nodes for beyond a launch: its start, and what comes after its ranks.
  static constexpr std::chrono::seconds kSpare = 2 * kStart;

  /// So many of next() are still to come, none of which takes longer than that; at most
  /// options.jobs_ahead of them are submitted at once.
  void expect(std::size_t launches, std::chrono::seconds longest) {
    expected_ = launches;
    longest_ = longest;
  }

  /// The nodes of the next job that runs, after at most options.wait_s. Jobs that an earlier start
  /// of this run has left in the queue go first; without any left, further ones are submitted. What
  /// has ended, is suspended or has run for too long is cancelled and left out.
  /// @throws Error(environment) with Slurm's own words, or when interrupted
  SlurmAllocation next(const SlurmMark& mark, const Progress& progress);

  /// Cancels what nobody has asked for yet. @throws Error(environment) when Slurm keeps it
  void cancel();

 private:
  void adopt(const SlurmMark& mark, const Progress& progress);
  void submit(const SlurmMark& mark, const Progress& progress);

  ClusterOptions options_;
  int slots_per_node_;
  std::size_t expected_ = 1;
  std::chrono::seconds longest_ = std::chrono::hours(24);  ///< where nobody has said
  bool adopted_ = false;
  std::deque<std::string> waiting_;
};

/// The number that `sbatch --parsable` prints, "12" or "12;cluster".
/// @throws Error(environment) for anything else
std::string submitted_job(const std::string& text);

}  // namespace dynamiccl
