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

  /// Learns the pace of every thread while nothing is sent; computes for `us` microseconds.
  void calibrate(double us);
  struct Run {
    double wall_us = 0;
    /// Computation that did not happen, by the pace calibrated before. Threads of one model wait
    /// for each other, so what any of them loses all lose: the sum, at most the whole time.
    double lost_us = 0;
  };
  /// Computes as long as `busy` says so; it is asked every few microseconds.
  Run run_while(const std::function<bool()>& busy);

 private:
  struct Worker {
    std::vector<float> data;
    std::atomic<std::uint64_t> rounds{0};
    double rounds_per_us = 0;
    void round();
  };
  void help(Worker& worker);
  void release();

  std::vector<Worker> workers_;  ///< the caller's first
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> running_{false};
  bool stop_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace dynamiccl
