#include "workers/train/compute_load.hpp"

#include <algorithm>

#include "workers/measure/clock.hpp"

namespace dynamiccl {
namespace {

/// 64 KiB: inside a core's second-level cache, as blocked convolutions and products are; one round
/// takes a few microseconds.
constexpr std::size_t kElements = 16 * 1024;

}  // namespace

void ComputeLoad::Worker::round() {
  // Converges, so that no value ever becomes subnormal or infinite.
  for (float& value : data) value = value * 0.5F + 1.0F;
  rounds.fetch_add(1, std::memory_order_relaxed);
}

ComputeLoad::ComputeLoad(int threads) : workers_(static_cast<std::size_t>(std::max(threads, 1))) {
  for (auto& worker : workers_) worker.data.assign(kElements, 1.0F);
  for (std::size_t i = 1; i < workers_.size(); ++i)
    helpers_.emplace_back([this, i] { help(workers_[i]); });
}

ComputeLoad::~ComputeLoad() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (auto& helper : helpers_) helper.join();
}

void ComputeLoad::help(Worker& worker) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return running_ || stop_; });
    if (stop_) return;
    lock.unlock();
    while (running_.load(std::memory_order_relaxed)) worker.round();
    lock.lock();
  }
}

void ComputeLoad::release() {
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
  }
  changed_.notify_all();
}

void ComputeLoad::calibrate(double us) {
  const double end_us = now_us() + us;
  const Run run = run_while([&] { return now_us() < end_us; });
  for (auto& worker : workers_)
    worker.rounds_per_us = static_cast<double>(worker.rounds) / std::max(run.wall_us, 1.0);
}

ComputeLoad::Run ComputeLoad::run_while(const std::function<bool()>& busy) {
  for (auto& worker : workers_) worker.rounds = 0;
  release();
  const double start_us = now_us();
  while (busy()) workers_.front().round();
  Run run;
  run.wall_us = now_us() - start_us;
  running_ = false;
  for (const auto& worker : workers_) {
    if (worker.rounds_per_us <= 0) continue;
    const double done_us = static_cast<double>(worker.rounds) / worker.rounds_per_us;
    run.lost_us += std::max(0.0, run.wall_us - done_us);
  }
  run.lost_us = std::min(run.lost_us, run.wall_us);
  return run;
}

}  // namespace dynamiccl
