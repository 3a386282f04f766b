#include "train/exchange/gradient_exchange.hpp"

#include <algorithm>
#include <chrono>

#include "train/exchange/reducers.hpp"
#include "train/exchange/staged.hpp"
#include "train/step/tensor_memory.hpp"
#include "workers/clock.hpp"

namespace dynamiccl {
namespace {

/// Short against a step, long against what a call costs the computing thread.
constexpr std::chrono::microseconds kProgressPause{500};
/// A GPU tells nobody that it has reached a gradient: short against the time between two.
constexpr std::chrono::microseconds kGpuPause{50};

bool waits_for_all(TrainingMethod method) {
  return method_row(method).order == SendOrder::after_backward;
}

bool is_by_urgency(TrainingMethod method) {
  return method_row(method).order == SendOrder::by_urgency;
}

}  // namespace

GradientExchange::GradientExchange(Communicator& comm, const ExchangePlan& plan, float* gradients,
                                   float* sums, TensorMemory* gpu, CallSettings* settings)
    : plan_(plan),
      comm_(comm),
      gpu_(gpu),
      reducer_(gpu != nullptr && goes_by_host(plan)
                   ? make_staged_reducer(comm, plan_, gradients, sums, *gpu)
                   : make_reducer(comm, plan_, gradients, sums, settings)),
      missing_(plan.pieces.size(), 0),
      open_(plan.counts.size(), 0),
      thread_([this] { run(); }) {}

GradientExchange::~GradientExchange() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  to_send_.notify_all();
  thread_.join();
}

void GradientExchange::start_step() {
  {
    std::unique_lock lock(mutex_);
    // The thread may still be closing the step before, whose sums have all arrived.
    to_wait_.wait(lock, [&] { return (!working_ && !step_wanted_) || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    std::fill(open_.begin(), open_.end(), 0);
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
      const Piece& piece = plan_.pieces[i];
      missing_[i] = piece.last - piece.first;
      for (std::size_t g = piece.first; g < piece.last; ++g) ++open_[g];
    }
    all_missing_ = plan_.counts.size();
    step_wanted_ = true;
  }
  to_send_.notify_all();
}

void GradientExchange::ready(std::size_t gradient) {
  // Waking the thread for a gradient that completes no piece would take the core from backward.
  bool sendable = false;
  {
    const std::lock_guard lock(mutex_);
    sendable = --all_missing_ == 0;
    const auto [first, last] = pieces_of(plan_.pieces, gradient);
    for (std::size_t i = first; i < last; ++i) sendable |= --missing_[i] == 0;
  }
  if (sendable) to_send_.notify_all();
}

void GradientExchange::wait(std::size_t gradient) {
  std::unique_lock lock(mutex_);
  to_wait_.wait(lock, [&] { return open_[gradient] == 0 || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void GradientExchange::flush() {
  std::unique_lock lock(mutex_);
  to_wait_.wait(lock, [&] { return (!working_ && !step_wanted_) || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

bool GradientExchange::idle() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return !working_ && !step_wanted_;
}

std::optional<double> GradientExchange::take_busy_us() {
  const std::lock_guard lock(mutex_);
  return std::exchange(busy_us_, 0);
}

std::vector<Span> GradientExchange::take_spans() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

void GradientExchange::run() {
  comm_.enter_thread();
  std::unique_lock lock(mutex_);
  while (true) {
    to_send_.wait(lock, [&] { return step_wanted_ || stop_; });
    if (stop_) return;
    step_wanted_ = false;
    working_ = true;
    try {
      one_step(lock);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
    }
    working_ = false;
    to_wait_.notify_all();
    if (failure_) return;
  }
}

template <class F>
void GradientExchange::timed(std::unique_lock<std::mutex>& lock, const char* what,
                             std::size_t piece, F&& work) {
  lock.unlock();
  const double start_us = now_us();
  work();
  const double end_us = now_us();
  lock.lock();
  busy_us_ += end_us - start_us;
  spans_.push_back({what, piece, start_us, end_us});
}

void GradientExchange::one_step(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  reducer_->begin_step();
  lock.lock();
  unanswered_ = 0;
  if (is_by_urgency(plan_.method)) {
    by_urgency(lock);
  } else {
    in_plan_order(lock);
  }
  // Answers are taken in once all is sent: who waits for an answer that another worker's next piece
  // brings, while that one waits for this worker's next piece, waits for ever.
  while (unanswered_ > 0) drain_oldest(lock);
  if (!reducer_->idle()) timed(lock, "serve", 0, [&] { reducer_->finish_step(); });
  if (!reducer_->second_pass()) return;
  for (std::size_t i = plan_.pieces.size(); i-- > 0;) {
    timed(lock, "all-gather", i, [&] { reducer_->second(i); });
    arrived(i);
  }
}

bool GradientExchange::is_ready(std::size_t piece) const {
  return waits_for_all(plan_.method) ? all_missing_ == 0 : missing_[piece] == 0;
}

bool GradientExchange::is_computed(std::size_t piece) const {
  if (gpu_ == nullptr) return true;
  for (std::size_t g = plan_.pieces[piece].first; g < plan_.pieces[piece].last; ++g)
    if (!gpu_->has_reached(g)) return false;
  return true;
}

void GradientExchange::await_ready(std::unique_lock<std::mutex>& lock, std::size_t piece) {
  sleep_until(lock, [&] { return is_ready(piece); });
  if (gpu_ == nullptr) return;
  lock.unlock();
  for (std::size_t g = plan_.pieces[piece].first; g < plan_.pieces[piece].last; ++g) {
    // The host queues a pass long before the GPU has done it: what is under way moves on meanwhile.
    while (!reducer_->idle() && !gpu_->has_reached(g)) {
      reducer_->progress();
      std::this_thread::yield();
    }
    gpu_->reached(g);
  }
  lock.lock();
}

template <class F>
void GradientExchange::sleep_until(std::unique_lock<std::mutex>& lock, F&& ready,
                                   const bool* unannounced) {
  while (!ready()) {
    if (stop_) throw Error(ErrorKind::environment, "training was ended in the middle of a step");
    const bool polls = unannounced != nullptr && *unannounced;
    const auto pause = polls ? kGpuPause : kProgressPause;
    if (reducer_->idle() && !polls) {
      to_send_.wait(lock);
    } else if (to_send_.wait_for(lock, pause) == std::cv_status::timeout) {
      // A pushed piece stands still where the library only moves data inside its calls.
      lock.unlock();
      reducer_->progress();
      lock.lock();
    }
  }
}

void GradientExchange::in_plan_order(std::unique_lock<std::mutex>& lock) {
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
    await_ready(lock, i);
    begin_piece(lock, i, !reducer_->second_pass());
  }
}

void GradientExchange::by_urgency(std::unique_lock<std::mutex>& lock) {
  std::vector<bool> started(plan_.pieces.size(), false);
  std::size_t left = plan_.pieces.size();
  while (left > 0) {
    // Credit is given back before more is taken.
    if (reducer_->pushing_bytes() >= plan_.credit_bytes) {
      timed(lock, "push", 0, [&] { reducer_->finish_push(); });
      continue;
    }
    std::vector<std::size_t> chosen;
    if (reducer_->chooses()) {
      std::vector<std::size_t> waiting;
      bool is_behind = false;
      const auto look = [&] {
        waiting.clear();
        is_behind = false;
        for (std::size_t i = 0; i < started.size() && !is_behind; ++i) {
          if (started[i] || !is_ready(i)) continue;
          // What the plan has next comes later in the GPU's queue: no need to ask for it.
          is_behind = !is_computed(i);
          if (!is_behind) waiting.push_back(i);
        }
        return !waiting.empty();
      };
      sleep_until(lock, look, &is_behind);
      chosen = take_urgent(plan_.pieces, waiting, plan_.credit_bytes - reducer_->pushing_bytes());
    }
    timed(lock, "agree", 0, [&] { reducer_->agree(chosen); });
    for (const std::size_t piece : chosen) {
      await_ready(lock, piece);
      begin_piece(lock, piece, true);
      started[piece] = true;
      --left;
    }
  }
}

void GradientExchange::begin_piece(std::unique_lock<std::mutex>& lock, std::size_t piece,
                                   bool whole) {
  bool done = false;
  timed(lock, whole ? "reduce" : "reduce-scatter", piece, [&] { done = reducer_->start(piece); });
  if (!done) ++unanswered_;
  if (done && whole) arrived(piece);
}

void GradientExchange::drain_oldest(std::unique_lock<std::mutex>& lock) {
  std::size_t piece = 0;
  timed(lock, "pull", 0, [&] { piece = reducer_->finish_oldest(); });
  spans_.back().piece = piece;
  --unanswered_;
  arrived(piece);
}

void GradientExchange::arrived(std::size_t piece) {
  for (std::size_t g = plan_.pieces[piece].first; g < plan_.pieces[piece].last; ++g) --open_[g];
  to_wait_.notify_all();
}

}  // namespace dynamiccl
