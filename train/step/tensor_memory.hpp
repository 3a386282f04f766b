#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "train/plan/sgd.hpp"
#include "workers/gpu_queue.hpp"

namespace dynamiccl {

/// Microseconds by one clock.
struct TimeSpan {
  double from_us = 0;
  double to_us = 0;
};

/// Where a worker's weights and gradients lie, and what is done to them there: host memory or a
/// GPU's. On a GPU the calls are queued behind the computation of the thread that makes them.
/// Counts are floats.
class TensorMemory {
 public:
  virtual ~TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  [[nodiscard]] virtual bool on_gpu() const = 0;
  /// Zeroed.
  [[nodiscard]] virtual std::shared_ptr<float> allocate(std::size_t count) = 0;
  virtual void copy(const float* from, float* to, std::size_t count) = 0;
  /// As copy(), but may be put off until flush_copies(): many small copies go as one. `from` lives
  /// as long as copies_wait().
  virtual void copy_later(const float* from, float* to, std::size_t count) = 0;
  virtual void flush_copies() = 0;
  [[nodiscard]] virtual bool copies_wait() const = 0;
  virtual void clear(float* at, std::size_t count) = 0;
  virtual void add(float* sum, const float* more, std::size_t count) = 0;
  /// to = keep x to + share x from; with keep 0 what `to` held does not matter, with share 0
  /// `from` is not read.
  virtual void blend(float* to, float keep, const float* from, float share, std::size_t count);
  /// As sgd_update(). May be put off until apply(): many small updates go as one.
  virtual void update(const Sgd& sgd, float* weight, float* velocity, const float* gradient,
                      float scale, std::size_t count) = 0;
  virtual void apply() = 0;
  /// To and from host memory; block until it is there.
  virtual void to_host(const float* from, float* host, std::size_t count) = 0;
  virtual void from_host(const float* host, float* to, std::size_t count) = 0;
  /// The same, only started, under a small number; done in the order in which they were started.
  /// copied() blocks until those before and the last one of that number are.
  virtual void start_to_host(const float* from, float* host, std::size_t count,
                             std::size_t /*number*/) {
    to_host(from, host, count);
  }
  virtual void start_from_host(const float* host, float* to, std::size_t count,
                               std::size_t /*number*/) {
    from_host(host, to, count);
  }
  virtual void copied(std::size_t /*number*/) {}
  /// Host memory for these, not zeroed: a GPU's is page-locked, exactly as much, and kept for
  /// the next who asks for no more.
  [[nodiscard]] virtual std::shared_ptr<float> allocate_host(std::size_t count) {
    return allocate(count);
  }
  /// What the calling thread copies from now on goes during the computation, not behind it.
  virtual void leave_computation() {}
  /// Blocks until everything queued is done.
  virtual void complete() = 0;
  /// The same, while `check` is called now and then: what it throws ends the wait.
  virtual void complete_or_fail(const std::function<void()>& /*check*/) { complete(); }
  /// The GPU's stream (a cudaStream_t) on which the calling thread computes; host memory has none.
  [[nodiscard]] virtual void* stream() { return nullptr; }
  /// Queues what `work` queues during the computation, behind note `number` of `queue`; join()
  /// makes the computation wait for it. Updates that `work` leaves waiting for apply() are queued
  /// with those of a later call, before any join(). GPUs alone.
  virtual void aside(GpuOrder& queue, std::size_t number, const std::function<void()>& work);
  virtual void join(std::size_t number);
  /// Notes the time at which the queue is here, under one of a few numbers; between_us() tells the
  /// microseconds between two of them, after complete(). The computing thread alone.
  virtual void stamp(std::size_t place) = 0;
  [[nodiscard]] virtual double between_us(std::size_t from, std::size_t to) = 0;
  /// Whether updates from now on are timed where they run, during the computation or behind it. To
  /// begin forgets those that are done.
  virtual void time_updates(bool /*wanted*/) {}
  /// From when to when the timed updates that are done ran, microseconds after that stamp, in the
  /// order in which they were queued. Host memory times none: its updates end with the call.
  [[nodiscard]] virtual std::vector<TimeSpan> updates_since(std::size_t /*place*/) { return {}; }
  /// Notes how far the queue is; reached() blocks until it was there. Any thread, marks below 2^16.
  virtual void mark(std::size_t number) = 0;
  virtual void reached(std::size_t number) = 0;
  /// True too where that mark was never noted.
  [[nodiscard]] virtual bool has_reached(std::size_t /*number*/) { return true; }

 protected:
  TensorMemory() = default;
};

std::unique_ptr<TensorMemory> make_host_memory();

/// Floats in such a memory, or in the host memory for its copies.
template <std::shared_ptr<float> (TensorMemory::*allocate)(std::size_t)>
class BufferOf {
 public:
  /// To `count` elements, zeroed but for host memory; a buffer that has them is left as it is. 0
  /// gives the memory back.
  void resize(TensorMemory& memory, std::size_t count) {
    if (count == count_) return;
    data_ = count > 0 ? (memory.*allocate)(count) : nullptr;
    count_ = count;
  }
  [[nodiscard]] float* data() { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] float* at(std::size_t offset) { return data_.get() + offset; }

 private:
  std::shared_ptr<float> data_;
  std::size_t count_ = 0;
};
using FlatBuffer = BufferOf<&TensorMemory::allocate>;
using HostBuffer = BufferOf<&TensorMemory::allocate_host>;

}  // namespace dynamiccl
