#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/wire/record.hpp"
#include "tests/train/paced_gpu.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/step/worker_step.hpp"

namespace dynamiccl::testing {

/// Threads whose collectives are done when they are queued.
class QueuedThreads : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void alltoallv(const void* in, void* out, const PairCounts& counts, DataType) override {
    ++swaps;
    for (std::size_t p = 0; p < counts.receive.size(); ++p)
      most = std::max(most, counts.receive_at[p] + counts.receive[p]);
    std::vector<Request> requests;
    for (int peer = 0; peer < size(); ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      const auto* from = static_cast<const float*>(in) + counts.send_at[p];
      auto* to = static_cast<float*>(out) + counts.receive_at[p];
      const auto bytes = [](int count) { return static_cast<std::size_t>(count) * sizeof(float); };
      if (counts.receive[p] > 0)
        requests.push_back(irecv(to, bytes(counts.receive[p]), peer, kSwapTag));
      if (counts.send[p] > 0)
        requests.push_back(isend(from, bytes(counts.send[p]), peer, kSwapTag));
    }
    for (const Request request : requests) wait(request);
  }
  int receive_any(void* data, std::size_t bytes, const std::vector<int>& from, int tag,
                  Micros) override {
    // In turn: that is one order in which they may come.
    const int next = from[turn_++ % from.size()];
    wait(irecv(data, bytes, next, tag));
    return next;
  }
  [[nodiscard]] bool works_on_gpu() const override { return true; }
  [[nodiscard]] GpuQueue* queue() override { return &queue_; }
  int swaps = 0;
  int most = 0;  ///< elements that one of them received

 private:
  static constexpr int kSwapTag = -2;
  PacedQueue queue_;
  std::size_t turn_ = 0;
};

/// Weights that are drawn to the pixels of each batch.
class DrawnLearner final : public StandInLearner {
 public:
  explicit DrawnLearner(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) {
      weights_.push_back(memory_.allocate(count));
      for (std::size_t i = 0; i < count; ++i) weights_.back().get()[i] = 0.01F * float(i % 7);
      gradients_.push_back(memory_.allocate(count));
      parameters_.push_back({weights_.back().get(), count, 0});
    }
  }
  [[nodiscard]] int stages() const override { return 1; }
  [[nodiscard]] NamedGpuMemory& memory() override { return memory_; }
  void load(const Batch& batch) override { pixels_ = batch.pixels; }
  void compute_loss() override { loss_ = 1.0 / ++losses_; }
  [[nodiscard]] double loss() const override { return loss_; }
  /// Tells whose weights are judged.
  double accuracy(const Batch&) override { return double{parameters_.front().data[0]}; }
  void backward() override {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < parameters_[p].count; ++i)
        gradients_[p].get()[i] = parameters_[p].data[i] - pixels_[i];
      callback_(p, gradients_[p].get());
    }
  }

 private:
  NamedGpuMemory memory_;
  std::vector<std::shared_ptr<float>> weights_;
  std::vector<std::shared_ptr<float>> gradients_;
  std::vector<float> pixels_;
  double loss_ = 0;
  double losses_ = 0;
};

/// Of a DrawnLearner's gradients, in the order of its backward pass.
inline const std::vector<std::size_t> kDrawnCounts{200, 300};

/// What every rank's check left.
struct RanRanks {
  std::vector<CellRecord> records;
  std::vector<std::string> failures;  ///< what was thrown
};

/// Runs `check(comm, plan, worker, learner, record)` on each rank, a thread with a Ranks (as
/// QueuedThreads) of its own; servers have no worker.
template <class Ranks, class Check>
RanRanks run_ranks(const TrainingSpec& spec, const ExchangePlan& plan, int ranks, Check&& check) {
  const auto data = open_dataset(spec);
  Network network;
  RanRanks ran;
  ran.records.resize(static_cast<std::size_t>(ranks));
  ran.failures.resize(ran.records.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto own = static_cast<std::size_t>(rank);
      CellRecord& record = ran.records[own];
      try {
        Ranks comm(network, rank, ranks);
        DrawnLearner learner({kDrawnCounts.rbegin(), kDrawnCounts.rend()});
        std::optional<TrainingWorker> worker;
        record.status = CellStatus::ok;
        record.training.emplace();
        if (rank >= plan.servers) {
          worker.emplace(spec, learner, *data, rank - plan.servers, ranks - plan.servers, 1);
          worker->set_order({1, 0});
        }
        check(comm, plan, worker ? &*worker : nullptr, learner, record);
      } catch (const std::exception& error) {
        ran.failures[own] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return ran;
}

}  // namespace dynamiccl::testing
