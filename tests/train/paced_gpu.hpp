#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/train/stand_in_learner.hpp"
#include "tests/train/thread_network.hpp"

namespace dynamiccl::testing {

/// A collective that was queued.
struct QueuedCall {
  std::string what;
  std::size_t lane;
  std::size_t count;  ///< elements of the whole message, over all ranks
};

/// Lanes whose calls take the time of a slow link, each at the pace of one lane and all together at
/// that of the link: complete() sleeps until they are done. Nothing is sent.
class PacedQueue final : public GpuQueue {
 public:
  static constexpr double kStartUs = 100;
  double lane_bytes_per_us = 4000;
  double link_bytes_per_us = 1e9;

  void call(const char* what, std::size_t count) {
    batch.push_back({what, lane_, count});
    busy_us_.resize(std::max(busy_us_.size(), lane_ + 1), 0);
    busy_us_[lane_] += kStartUs + static_cast<double>(count * sizeof(float)) / lane_bytes_per_us;
    link_us_ += static_cast<double>(count * sizeof(float)) / link_bytes_per_us;
  }
  void complete() {
    double longest_us = std::exchange(link_us_, 0);
    for (const double us : busy_us_) longest_us = std::max(longest_us, us);
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(longest_us));
    busy_us_.clear();
    now_us_ += longest_us;
    if (!batch.empty()) batches.push_back(std::exchange(batch, {}));
  }
  /// What was queued between two complete(), and since the last.
  std::vector<std::vector<QueuedCall>> batches;
  std::vector<QueuedCall> batch;

  void mark_start() override {}
  void mark_stop() override {}
  double marked_us() override { return 0; }
  void begin_capture() override {}
  void end_capture() override {}
  void replay() override {}
  void follow(void* /*stream*/) override {}
  void note(std::size_t /*number*/) override {}
  void note_also(std::size_t /*number*/) override {}
  void hold_back(void* /*stream*/, std::size_t /*number*/) override {}
  void stamp(std::size_t number) override {
    stamps_.resize(std::max(stamps_.size(), number + 1));
    stamps_[number] = now_us_ + (lane_ < busy_us_.size() ? busy_us_[lane_] : 0);
  }
  [[nodiscard]] double between_us(std::size_t from, std::size_t to) override {
    return stamps_.at(to) - stamps_.at(from);
  }
  void use_lane(std::size_t lane) override { lane_ = lane; }

 private:
  std::size_t lane_ = 0;
  double link_us_ = 0;           ///< that the link needs for what was queued
  double now_us_ = 0;            ///< of the link
  std::vector<double> busy_us_;  ///< of each lane
  std::vector<double> stamps_;
};

/// One thread's rank whose collectives are queued at that pace; host messages go among threads.
class PacedCommunicator final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void allreduce(const void*, void*, std::size_t count, DataType) override {
    paced.call("sum", count);
  }
  void reduce_scatter(const void*, void*, std::size_t count, DataType) override {
    paced.call("scatter", count * static_cast<std::size_t>(size()));
  }
  void allgather(const void*, void*, std::size_t count, DataType) override {
    paced.call("gather", count * static_cast<std::size_t>(size()));
  }
  [[nodiscard]] bool works_on_gpu() const override { return true; }
  [[nodiscard]] GpuQueue* queue() override { return &paced; }
  void complete() override { paced.complete(); }
  std::size_t open_lanes(std::size_t count) override { return std::min(count, openable); }
  std::size_t openable = 64;
  PacedQueue paced;
};

/// Host memory that says it is a GPU's, which has a clock of its own.
class NamedGpuMemory final : public TensorMemory {
 public:
  [[nodiscard]] bool on_gpu() const override { return true; }
  [[nodiscard]] std::shared_ptr<float> allocate(std::size_t count) override {
    return host_->allocate(count);
  }
  void copy(const float* from, float* to, std::size_t count) override {
    host_->copy(from, to, count);
  }
  void copy_later(const float* from, float* to, std::size_t count) override {
    host_->copy(from, to, count);
  }
  void flush_copies() override {}
  [[nodiscard]] bool copies_wait() const override { return false; }
  void clear(float* at, std::size_t count) override { host_->clear(at, count); }
  void add(float* sum, const float* more, std::size_t count) override {
    host_->add(sum, more, count);
  }
  void update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
              std::size_t count) override {
    // As a GPU's fused update: the velocity is that of gradients before they are scaled.
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = sgd.momentum * velocity[i] + gradient[i];
      weight[i] -= sgd.rate * scale * velocity[i];
    }
  }
  void apply() override {}
  void to_host(const float* from, float* host, std::size_t count) override {
    host_->copy(from, host, count);
  }
  void from_host(const float* host, float* to, std::size_t count) override {
    host_->copy(host, to, count);
  }
  void complete() override {}
  void aside(GpuOrder&, std::size_t, const std::function<void()>& work) override { work(); }
  void join(std::size_t /*number*/) override { computed_us += sum_us; }
  void time_updates(bool wanted) override { times_updates = wanted; }
  [[nodiscard]] std::vector<TimeSpan> updates_since(std::size_t place) override {
    std::vector<TimeSpan> since = ran;
    for (TimeSpan& each : since) {
      each.from_us -= stamps.at(place);
      each.to_us -= stamps.at(place);
    }
    return since;
  }
  void stamp(std::size_t place) override { stamps[place] = computed_us; }
  [[nodiscard]] double between_us(std::size_t from, std::size_t to) override {
    return stamps.at(to) - stamps.at(from);
  }
  void mark(std::size_t /*number*/) override {}
  void reached(std::size_t /*number*/) override {}
  double computed_us = 0;  ///< what was queued so far takes until then
  double sum_us = 0;       ///< that the computation waits for each sum
  bool times_updates = false;
  std::vector<TimeSpan> ran;  ///< updates, by the clock of computed_us
  std::map<std::size_t, double> stamps;

 private:
  std::unique_ptr<TensorMemory> host_ = make_host_memory();
};

/// Two stages of given weights, which are their own gradients; they take the GPU's time alone.
class IdleLearner final : public StandInLearner {
 public:
  static constexpr double kForwardUs = 1e6;
  static constexpr double kBackwardUs = 3e6;

  explicit IdleLearner(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) {
      weights_.push_back(memory_.allocate(count));
      parameters_.push_back({weights_.back().get(), count, 0});
    }
  }
  [[nodiscard]] int stages() const override { return 2; }
  [[nodiscard]] NamedGpuMemory& memory() override { return memory_; }
  void forward(int) override { memory_.computed_us += kForwardUs; }
  double leave_us = 0;
  void backward() override {
    memory_.computed_us += kBackwardUs;
    for (std::size_t i = 0; i < parameters_.size(); ++i) callback_(i, parameters_[i].data);
    // The host takes its time to come back, while sums are under way.
    memory_.computed_us += leave_us;
  }

 private:
  NamedGpuMemory memory_;
  std::vector<std::shared_ptr<float>> weights_;
};

}  // namespace dynamiccl::testing
