#include "train/observe/compute_load.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "workers/clock.hpp"

namespace dynamiccl {
namespace {

/// 64 KiB: inside a core's second-level cache, as blocked convolutions and products are; one round
/// takes a few microseconds.
constexpr std::size_t kElements = std::size_t{16} * 1024;
/// How often threads of a model wait for each other, about: a layer's time.
constexpr double kStretchUs = 2000;

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
    running_ = false;  // still set where `begin` or `busy` threw
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

/// Back when every thread computes: waking one takes longer than a small message.
void ComputeLoad::release() {
  for (auto& worker : workers_) worker.rounds = 0;
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
  }
  changed_.notify_all();
  for (std::size_t i = 1; i < workers_.size(); ++i)
    while (workers_[i].rounds.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
}

ComputeLoad::Stretch ComputeLoad::rounds_so_far() const {
  Stretch rounds;
  for (const auto& worker : workers_)
    rounds.push_back(worker.rounds.load(std::memory_order_relaxed));
  return rounds;
}

ComputeLoad::Observed ComputeLoad::observe(const std::function<void()>& begin,
                                           const std::function<bool()>& busy) {
  Observed observed;
  release();
  Stretch before = rounds_so_far();
  const auto close = [&] {
    const Stretch after = rounds_so_far();
    Stretch done(after.size());
    std::transform(after.begin(), after.end(), before.begin(), done.begin(), std::minus<>());
    observed.stretches.push_back(std::move(done));
    before = after;
  };
  const double start_us = now_us();
  double end_us = start_us + kStretchUs;
  begin();
  while (busy()) {
    workers_.front().round();
    if (const double at_us = now_us(); at_us >= end_us) {
      close();
      end_us = at_us + kStretchUs;
    }
  }
  observed.wall_us = now_us() - start_us;
  close();
  running_ = false;
  return observed;
}

double ComputeLoad::together_us(const std::vector<Stretch>& stretches,
                                const std::vector<double>& rounds_per_us) {
  double sum_us = 0;
  for (const auto& stretch : stretches) {
    double least_us = std::numeric_limits<double>::max();
    for (std::size_t i = 0; i < stretch.size(); ++i)
      least_us = std::min(least_us, static_cast<double>(stretch[i]) / rounds_per_us[i]);
    sum_us += least_us;
  }
  return sum_us;
}

void ComputeLoad::calibrate(double us) {
  const double end_us = now_us() + us;
  const Observed observed = observe([] {}, [&] { return now_us() < end_us; });
  rounds_per_us_.assign(workers_.size(), 0);
  for (const auto& stretch : observed.stretches)
    for (std::size_t i = 0; i < stretch.size(); ++i)
      rounds_per_us_[i] += static_cast<double>(stretch[i]) / observed.wall_us;
  // A thread that had no core at all has no pace.
  for (auto& pace : rounds_per_us_) pace = std::max(pace, 1 / observed.wall_us);
  together_ = together_us(observed.stretches, rounds_per_us_) / observed.wall_us;
}

ComputeLoad::Run ComputeLoad::run_while(const std::function<void()>& begin,
                                        const std::function<bool()>& busy) {
  const Observed observed = observe(begin, busy);
  Run run;
  run.wall_us = observed.wall_us;
  if (rounds_per_us_.empty() || together_ <= 0) return run;
  const double done_us = together_us(observed.stretches, rounds_per_us_) / together_;
  run.lost_us = std::clamp(run.wall_us - done_us, 0.0, run.wall_us);
  return run;
}

}  // namespace dynamiccl
