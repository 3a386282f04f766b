#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "train/codecs/queued/queued_codec.hpp"
#include "train/exchange/call_settings.hpp"
#include "train/exchange/lanes.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/step/step_exchange.hpp"
#include "train/step/tensor_memory.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// An exchange whose every call only queues work on the GPU: collectives on the library's stream
/// wait for gradients by events, computation waits for sums by events, the host for nothing. For
/// libraries with a queue (NCCL) and methods whose order is known beforehand.
class QueuedExchange final : public StepExchange {
 public:
  /// @param gradients plan.elements() of the GPU's memory, replaced by the sums; outlives this
  /// @param memory of the computation whose streams are waited for
  /// @param settings of the all-reduces, by step; nullptr: the library's own
  QueuedExchange(Communicator& comm, const ExchangePlan& plan, float* gradients,
                 TensorMemory& memory, CallSettings* settings = nullptr);

  void start_step() override;
  void ready(std::size_t gradient) override;
  bool apply_by(const Apply& apply) override {
    apply_ = apply;
    return true;
  }
  void wait(std::size_t gradient) override;
  void end_step() override;
  void flush() override { comm_.complete(); }
  void check() override { comm_.check_queued(); }
  /// The GPU's work is seen by its events alone.
  std::optional<double> take_busy_us() override { return std::nullopt; }
  /// Times by the GPU cost an event before and after each call: that step alone has them, or all
  /// where settings are chosen by them.
  void trace_next() override;
  std::vector<Span> take_spans() override;
  void restart() override {
    if (codec_) codec_->restart();
  }
  /// Encoding and decoding are timed by the step that was traced last.
  std::optional<CodingFigures> take_coding() override;
  [[nodiscard]] std::uint64_t sent_bytes() const override {
    return codec_ ? codec_->sent_bytes() : sent_bytes_;
  }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return codec_ ? codec_->extra_bytes() : 0;
  }

 private:
  void use_lane(std::size_t lane);
  void reduce(std::size_t piece);
  void reduce_encoded(std::size_t piece);
  /// Makes the call on the lane in use, between two stamps where its time is wanted.
  template <class F>
  void call(const char* what, std::size_t piece, const Stripe& stripe, F&& library);
  void queued(std::size_t piece, const Stripe& stripe);
  void summed(std::size_t piece);
  void scatter_sums(const Stripe& stripe);
  void gather_sums(const Stripe& stripe);

  Communicator& comm_;
  GpuOrder& queue_;
  ExchangePlan plan_;
  float* gradients_;
  TensorMemory& memory_;
  std::vector<std::vector<Stripe>> stripes_;  ///< of each piece
  std::vector<bool> followed_;        ///< of each lane: it waits for the gradients ready now
  bool split_;                        ///< DeAR: all-gathers follow in the order of the forward pass
  std::vector<std::size_t> missing_;  ///< of each piece: gradients that are not ready
  std::size_t next_ = 0;              ///< pieces before it are queued
  std::vector<bool> awaited_;         ///< of each piece: computation waits for it
  Apply apply_;
  CallSettings* settings_;
  bool trace_wanted_ = false;
  bool traces_ = false;
  std::vector<Span> spans_;  ///< traced, of stamps 1 and 2, 3 and 4, ...; their times not yet
  std::unique_ptr<QueuedCodec> codec_;  ///< of what travels
  double encode_us_ = 0;                ///< of the traced step
  double decode_us_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

/// True where the GPU itself can order this plan's work.
bool can_be_queued(Communicator& comm, const ExchangePlan& plan);

/// The exchange that suits the plan and the library. Buffers as in GradientExchange, of `memory`.
/// @param settings of the library's all-reduces, by step; nullptr: its own
std::unique_ptr<StepExchange> make_exchange(Communicator& comm, const ExchangePlan& plan,
                                            float* gradients, float* sums, TensorMemory& memory,
                                            CallSettings* settings = nullptr);

}  // namespace dynamiccl
