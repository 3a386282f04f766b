#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dynamiccl {

/// Computation that stands in for a model's while messages are timed: multiply-adds over a buffer
/// that fits a core's own cache, in the caller's thread and as many more as a rank computes with.
class ComputeLoad {
 public:
  /// @param threads of computation, at least 1
  explicit ComputeLoad(int threads);
  ~ComputeLoad();
  ComputeLoad(const ComputeLoad&) = delete;
  ComputeLoad& operator=(const ComputeLoad&) = delete;

  /// Learns the pace of every thread, and of all together, while nothing is sent; computes for `us`
  /// microseconds.
  void calibrate(double us);
  struct Run {
    double wall_us = 0;  ///< since `begin`
    /// Computation that did not happen, by the pace calibrated before. Threads of one model wait
    /// for each other every few milliseconds: what the slowest of them loses in such a time all
    /// lose. At most the whole time.
    double lost_us = 0;
  };
  /// Computes as long as `busy` says so; it is asked every few microseconds. All threads compute
  /// when `begin` is called, in this thread.
  Run run_while(const std::function<void()>& begin, const std::function<bool()>& busy);

  /// Rounds that every thread did in one stretch of a run; all rows are equally long.
  using Stretch = std::vector<std::uint64_t>;
  /// Microseconds of computation that all threads did together: in each stretch as many as the
  /// slowest by its own pace.
  static double together_us(const std::vector<Stretch>& stretches,
                            const std::vector<double>& rounds_per_us);

 private:
  struct Worker {
    std::vector<float> data;
    std::atomic<std::uint64_t> rounds{0};
    void round();
  };
  struct Observed {
    double wall_us = 0;
    std::vector<Stretch> stretches;
  };
  void help(Worker& worker);
  void release();
  [[nodiscard]] Stretch rounds_so_far() const;
  Observed observe(const std::function<void()>& begin, const std::function<bool()>& busy);

  std::vector<Worker> workers_;  ///< the caller's first
  std::vector<double> rounds_per_us_;
  double together_ = 1;  ///< what all did together while nothing was sent, share of the time
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> running_{false};
  bool stop_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace dynamiccl
