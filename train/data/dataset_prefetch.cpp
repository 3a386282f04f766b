#include "train/data/dataset_prefetch.hpp"

#include <utility>

namespace dynamiccl {

BatchPrefetcher::BatchPrefetcher(const Dataset& data, const Sharding& sharding, int batch)
    : data_(data), sharding_(sharding), batch_(batch), thread_([this] { run(); }) {}

BatchPrefetcher::~BatchPrefetcher() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchPrefetcher::start(std::uint64_t step, int worker) {
  {
    const std::scoped_lock lock(mutex_);
    asked_ = Place{step, worker};
  }
  changed_.notify_all();
}

const Batch& BatchPrefetcher::take(std::uint64_t step, int worker) {
  std::unique_lock lock(mutex_);
  const Place place{step, worker};
  if (asked_ != place) {
    asked_ = place;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return made_ == place; });
  asked_.reset();
  made_.reset();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  std::swap(taken_, next_);
  return taken_;
}

void BatchPrefetcher::make(Place place) {
  next_.count = 0;
  // Memory that is kept need not be faulted in again.
  next_.pixels.clear();
  next_.tokens.clear();
  next_.labels.clear();
  for (int i = 0; i < batch_; ++i)
    data_.add_to(next_, sharding_.sample(place.step, place.worker, i));
}

void BatchPrefetcher::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ended_ || (asked_ && made_ != asked_); });
    if (ended_) return;
    const Place place = *asked_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      make(place);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    made_ = place;
    failure_ = failure;
    changed_.notify_all();
  }
}

}  // namespace dynamiccl
