#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "train/data/dataset.hpp"

namespace dynamiccl {

/// Makes batches on a thread of its own, so that the next one is made while a step computes. Which
/// samples are in a batch, and their bits, do not depend on when it is made. All calls by one
/// thread.
class BatchPrefetcher {
 public:
  /// @param data outlives it
  BatchPrefetcher(const Dataset& data, const Sharding& sharding, int batch);
  /// Waits for a batch that is being made.
  ~BatchPrefetcher();
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;

  /// Starts making this batch and returns at once; what was started before and not taken is lost.
  void start(std::uint64_t step, int worker);
  /// This batch, valid until the next take(). Starts it where it was not started, and waits.
  /// @throws what the data set threw; the next take() tries anew
  const Batch& take(std::uint64_t step, int worker);

 private:
  struct Place {
    std::uint64_t step = 0;
    int worker = 0;
    bool operator==(const Place&) const = default;
  };
  void run();
  void make(Place place);

  const Dataset& data_;
  Sharding sharding_;  ///< the thread's
  int batch_;
  Batch taken_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Batch next_;  ///< the thread's until made_ == asked_
  std::optional<Place> asked_;
  std::optional<Place> made_;
  std::exception_ptr failure_;  ///< of making made_
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace dynamiccl
