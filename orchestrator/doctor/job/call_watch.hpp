#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// Places in a file at which functions begin.
struct FunctionPlaces {
  std::string file;  ///< as this process reaches it, "/proc/77/root/usr/lib/libmpi.so.40"
  std::vector<std::uint64_t> offsets;
};

/// Collectives of MPI and Gloo by the symbols of an ELF file; none where it has no such symbols.
/// @param names "MPI_Allreduce": of MPI's only these
FunctionPlaces collectives_in(const std::string& file, const std::set<std::string>& names);

/// Counts, from outside, how long each rank is inside collectives: uprobes of the kernel on their
/// entry and return (perf_event_open), in the threads that a rank has at the beginning. The job is
/// not restarted or stopped; a call costs it some microseconds, and where calls come so fast that
/// this were more than a hundredth of its time, only a part of the time is watched.
class CallWatch {
 public:
  /// Sets the probes, which takes some milliseconds each, so on the calls that looks have found
  /// ranks in.
  explicit CallWatch(const std::vector<LiveRank>& ranks);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// Why no rank is watched: the kernel has none, it needs a privilege, no symbols; "" = all are.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  /// Watches for up to so many seconds, blocking, and adds a slice to each rank.
  void watch(double seconds, std::vector<LiveRank>& ranks);

 private:
  struct Thread;
  struct Rank;
  bool open_rank(const LiveRank& rank, const std::set<std::string>& names, int type);
  void switch_all(bool on);
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::string problem_;
  bool on_ = false;  ///< since the last slice's end
  double last_s_ = 0;
  double part_ =
      0.1;  ///< of the time that is watched: little until it is known how fast calls come
};

}  // namespace dynamiccl
