#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "workers/communicator.hpp"
#include "workers/train/exchange/exchange_plan.hpp"

namespace dynamiccl {

class TensorMemory;

/// One thing the communication thread, or a lane of the GPU's queue, did, for the timeline.
/// Microseconds of the rank's clock.
struct Span {
  const char* what;
  std::size_t piece;
  double start_us;
  double end_us;
  std::size_t lane = 0;
  std::size_t bytes = 0;  ///< where it is a lane's part of the piece, else 0
};

/// How one piece is summed over all workers: the architecture's half of a method. Called by the
/// communication thread alone.
class Reducer {
 public:
  virtual ~Reducer() = default;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Before the first piece of a step and after the last one's sum.
  virtual void begin_step() {}
  virtual void finish_step() {}
  /// Starts or does the piece. Returns true when its sum is there already.
  virtual bool start(std::size_t piece) = 0;
  /// Blocks until the piece that was started first of those still open is there.
  virtual std::size_t finish_oldest() { return 0; }
  /// Bytes whose sending has not been seen to end; finish_push() waits for the oldest. What credit
  /// is counted by: a push ends without other workers, so workers may push in different orders.
  [[nodiscard]] virtual std::size_t pushing_bytes() const { return 0; }
  virtual void finish_push() {}
  /// Lets what is under way move on while nobody waits for it.
  virtual void progress() {}
  /// True when nothing is under way, of this worker's or of those that it serves.
  [[nodiscard]] virtual bool idle() const { return true; }
  /// Whether a second pass over all pieces, in reverse order, follows (DeAR).
  virtual bool second_pass() { return false; }
  virtual void second(std::size_t /*piece*/) {}
  /// Makes all ranks start the same pieces: replaces this rank's choice by the agreed one.
  virtual void agree(std::vector<std::size_t>& /*chosen*/) {}
  /// True on the rank whose choice counts, and where everyone may choose for himself.
  [[nodiscard]] virtual bool chooses() const { return true; }
  /// Between steps: the weights from which a colocated server that is the optimizer goes on, in
  /// host memory.
  virtual void take_weights(const float* /*weights*/) {}
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// Memory for gradients beside the buffers it was given and staging_bytes(): at most a copy of
  /// them.
  [[nodiscard]] virtual std::size_t extra_bytes() const { return 0; }
  /// Page-locked host memory by way of which a GPU's gradients go: at most a copy of them.
  [[nodiscard]] virtual std::size_t staging_bytes() const { return 0; }

 protected:
  Reducer() = default;
  std::uint64_t sent_bytes_ = 0;
};

/// @param gradients this worker's, replaced by the sum unless `sums` is another buffer: with
/// servers an answer is then taken in once its piece has been sent, no earlier
std::unique_ptr<Reducer> make_reducer(Communicator& comm, const ExchangePlan& plan,
                                      float* gradients, float* sums);

/// How a worker's gradients become sums, as its steps see it. One step after the other:
/// start_step(), ready() for every gradient, wait() for every gradient; all from the computing
/// thread, except that ready() may come from another one while that thread runs the backward pass.
class StepExchange {
 public:
  virtual ~StepExchange() = default;
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  /// Before the first gradient of a step. Every sum of the step before has been waited for.
  virtual void start_step() = 0;
  /// The gradient lies in the buffer, or will when the GPU has done what was queued so far. Each
  /// one exactly once per step.
  virtual void ready(std::size_t gradient) = 0;
  /// True when TensorMemory::mark() must come before each ready().
  [[nodiscard]] virtual bool needs_marks() const { return false; }
  /// Who applies the sums of the gradients [first, last). An exchange that queues its work calls it
  /// as soon as they are queued, so that it queues the update beside the computation, and wait()
  /// waits for that too. Returns false where the caller applies them after wait().
  using Apply = std::function<void(std::size_t first, std::size_t last)>;
  virtual bool apply_by(const Apply& /*apply*/) { return false; }
  /// What the computing thread does or queues from now on finds the sum of this gradient.
  /// @throws what ended the communication
  virtual void wait(std::size_t gradient) = 0;
  /// Blocks until nothing is under way, so that the owner may use the communicator.
  virtual void flush() = 0;
  /// For who waits for what the GPU was given: @throws what will keep it from ever being done
  virtual void check() {}
  /// As Reducer::take_weights().
  virtual void take_weights(const float* /*weights*/) {}

  /// Since the last call: microseconds in which communication was busy, nullopt where nobody saw
  /// it.
  virtual std::optional<double> take_busy_us() = 0;
  /// What the next step does is wanted; what was before is forgotten.
  virtual void trace_next() { take_spans(); }
  /// What it did since the last call, or since trace_next(); on a GPU in the step after that alone.
  /// After flush().
  virtual std::vector<Span> take_spans() = 0;
  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
  /// As Reducer's.
  [[nodiscard]] virtual std::size_t extra_bytes() const = 0;
  [[nodiscard]] virtual std::size_t staging_bytes() const { return 0; }

 protected:
  StepExchange() = default;
};

/// A worker's side of a method. The computing thread reports gradients as they become ready and
/// waits for sums; a thread of its own talks to the library meanwhile (Communicator is for one
/// thread at a time: the owner stays away from it between start_step and flush).
class GradientExchange final : public StepExchange {
 public:
  /// Buffers hold plan.elements() and outlive this object.
  /// @param gpu whose memory the buffers are, where a gradient that was reported ready is in its
  /// place only when its mark has been reached; nullptr for host memory
  GradientExchange(Communicator& comm, const ExchangePlan& plan, float* gradients, float* sums,
                   TensorMemory* gpu = nullptr);
  ~GradientExchange() override;

  void start_step() override;
  /// From any thread.
  void ready(std::size_t gradient) override;
  [[nodiscard]] bool needs_marks() const override { return gpu_ != nullptr; }
  /// Blocks until the sum is there.
  void wait(std::size_t gradient) override;
  void flush() override;
  void take_weights(const float* weights) override { reducer_->take_weights(weights); }
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

/// The first worker's weights, in the buffer's order, to dedicated servers that are optimizers.
/// They are in GradientServer::take_weights() meanwhile.
void send_weights(Communicator& comm, const ExchangePlan& plan, const float* weights);

/// A dedicated server's side: sums every worker's pieces in rank order, so that sums are the same
/// bits in every run, and sends them back, or the weights that it updates with them. Holds one slot
/// per worker and the answer: (N + 1) times its shard, and momentum where it is the optimizer.
class GradientServer {
 public:
  GradientServer(Communicator& comm, const ExchangePlan& plan);
  ~GradientServer();
  GradientServer(const GradientServer&) = delete;
  GradientServer& operator=(const GradientServer&) = delete;
  /// Takes the weights from the first worker's send_weights(), momentum 0; nothing where workers
  /// are the optimizers.
  void take_weights();
  /// Serves so many steps of all workers. Per step: microseconds until its last sum was sent.
  struct Step {
    double start_us;
    double end_us;
    double sum_us;
  };
  std::vector<Step> serve(int steps);
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// Gradients and answers; momentum is the optimizer's.
  [[nodiscard]] std::size_t held_bytes() const { return buffer_.size() * sizeof(float); }
  [[nodiscard]] std::size_t shard_bytes() const { return shard_elements_ * sizeof(float); }

 private:
  struct Shard;
  void post(std::size_t shard, int worker);
  void complete(std::size_t shard, Step& step);
  float* slot(std::size_t shard, int worker);

  Communicator& comm_;
  ExchangePlan plan_;
  int workers_;
  std::vector<Shard> shards_;  ///< pieces of this server
  std::vector<std::size_t> shard_of_piece_;
  std::size_t shard_elements_ = 0;
  std::vector<float> buffer_;
  std::vector<float> velocity_;         ///< of the shard, where the server is the optimizer
  std::vector<std::uint32_t> headers_;  ///< of a step: which piece comes, by round and worker
  std::vector<Request> header_requests_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dynamiccl
