#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "train/exchange/call_settings.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "train/step/step_exchange.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

class TensorMemory;

/// A worker's side of a method. The computing thread reports gradients as they become ready and
/// waits for sums; a thread of its own talks to the library meanwhile (Communicator is for one
/// thread at a time: the owner stays away from it between start_step and flush).
class GradientExchange final : public StepExchange {
 public:
  /// Buffers hold plan.elements() and outlive this object.
  /// @param gpu whose memory the buffers are, where a gradient that was reported ready is in its
  /// place only when its mark has been reached; nullptr for host memory
  /// @param settings as make_reducer()'s, of host memory
  GradientExchange(Communicator& comm, const ExchangePlan& plan, float* gradients, float* sums,
                   TensorMemory* gpu = nullptr, CallSettings* settings = nullptr);
  ~GradientExchange() override;

  void start_step() override;
  /// From any thread.
  void ready(std::size_t gradient) override;
  [[nodiscard]] bool needs_marks() const override { return gpu_ != nullptr; }
  /// Blocks until the sum is there.
  void wait(std::size_t gradient) override;
  void flush() override;
  void take_weights(const float* weights) override { reducer_->take_weights(weights); }
  void restart() override { reducer_->restart(); }
  std::optional<CodingFigures> take_coding() override { return reducer_->take_coding(); }
  /// True when the step that was started is over. @throws what ended the communication
  [[nodiscard]] bool idle();

  std::optional<double> take_busy_us() override;
  std::vector<Span> take_spans() override;
  [[nodiscard]] std::uint64_t sent_bytes() const override { return reducer_->sent_bytes(); }
  [[nodiscard]] std::size_t extra_bytes() const override { return reducer_->extra_bytes(); }
  [[nodiscard]] std::size_t staging_bytes() const override { return reducer_->staging_bytes(); }

 private:
  void run();
  void one_step(std::unique_lock<std::mutex>& lock);
  void in_plan_order(std::unique_lock<std::mutex>& lock);
  void by_urgency(std::unique_lock<std::mutex>& lock);
  void begin_piece(std::unique_lock<std::mutex>& lock, std::size_t piece, bool whole);
  void drain_oldest(std::unique_lock<std::mutex>& lock);
  void arrived(std::size_t piece);
  [[nodiscard]] bool is_ready(std::size_t piece) const;
  /// Whether a ready piece's gradients are in their places, not only in a GPU's queue.
  [[nodiscard]] bool is_computed(std::size_t piece) const;
  /// Sleeps until `ready`, the open pieces moving on meanwhile. @throws when training is ended
  /// @param unannounced set by `ready` while it waits for what no call of this object tells of
  template <class F>
  void sleep_until(std::unique_lock<std::mutex>& lock, F&& ready,
                   const bool* unannounced = nullptr);
  void await_ready(std::unique_lock<std::mutex>& lock, std::size_t piece);
  /// Runs `work` without the lock and notes it.
  template <class F>
  void timed(std::unique_lock<std::mutex>& lock, const char* what, std::size_t piece, F&& work);

  ExchangePlan plan_;
  Communicator& comm_;
  TensorMemory* gpu_;
  std::unique_ptr<Reducer> reducer_;
  std::mutex mutex_;
  std::condition_variable to_send_;
  std::condition_variable to_wait_;
  std::vector<std::size_t> missing_;  ///< of each piece: gradients that are not ready
  std::vector<std::size_t> open_;     ///< of each gradient: pieces whose sum is not there
  std::size_t all_missing_ = 0;
  std::size_t unanswered_ = 0;  ///< pieces that were started and whose sum is not there
  bool step_wanted_ = false;
  bool working_ = false;
  bool stop_ = false;
  double busy_us_ = 0;
  std::vector<Span> spans_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace dynamiccl
