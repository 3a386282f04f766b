#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "train/codecs/message_codec.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/synchronise/message_buffers.hpp"
#include "train/synchronise/update_log.hpp"
#include "train/synchronise/update_policy.hpp"
#include "train/synchronise/worker_group.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// The rank of the first server, which alone says when a phase is over.
inline constexpr int kUpdateServer = 0;

/// The part of all parameters that one of several servers holds, in elements.
struct Shard {
  std::size_t begin = 0;
  std::size_t count = 0;
};
Shard shard_of(const ExchangePlan& plan, int server);

/// What precedes a worker's gradient, and a server's weights.
struct PushHead {
  std::uint32_t worker = 0;
  std::uint32_t clock = 0;    ///< steps that this worker did before
  std::uint32_t version = 0;  ///< of the weights that it computed with
  float loss = 0;
  std::uint64_t bytes = 0;  ///< of the gradient that follows, where it is encoded
};
struct AnswerHead {
  std::uint32_t version = 0;  ///< updates that the weights have seen
  std::uint32_t goes_on = 0;  ///< 0: the weights are everybody's, and the phase is over
};

/// As many gradients as a synchronous step has, or, with backup workers, one update: a sample.
struct UpdateRound {
  double start_us = 0;
  double total_us = 0;
  double update_us = 0;  ///< the server's own work in it
  double loss = 0;       ///< mean of the steps that came in it
};

/// A server of asynchronous workers: it holds the weights, applies each gradient when it comes
/// (with backup workers: the first of each step together) and answers each worker by itself, as
/// soon as the synchronisation lets that one go on. Weights and momentum, and a slot per worker for
/// what it is answered. A group of workers is one worker to it, whose gradient is the group's sum.
/// It decodes what workers encoded; answers are plain weights. Host memory.
/// Of several servers (Downpour SGD: Dean et al., 2012) each holds a shard and applies gradients in
/// an order of its own. The first one alone holds workers back, at a phase's end; the others, which
/// know how many gradients a phase has, answer at once and send the final shard after the last.
class UpdateServer {
 public:
  /// @param silence after which workers that owe a gradient are taken for lost
  UpdateServer(Messages& comm, const ExchangePlan& plan, const TrainingSpec& spec, Micros silence);
  /// Takes the first worker's weights (UpdateWorker::start), momentum 0, clocks 0.
  void start();
  /// Workers wait as TrainingSpec::switch_to says from now on. Between two phases.
  void switch_over();
  /// Serves so many rounds; all workers have the same weights then and have done nothing more.
  std::vector<UpdateRound> serve(int rounds);
  [[nodiscard]] const UpdateLog& log() const { return log_; }
  [[nodiscard]] const std::vector<float>& weights() const { return weights_; }
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const {
    return (static_cast<std::size_t>(workers_) + 1) * weights_.size() * sizeof(float) +
           frames_.size();
  }

 private:
  struct Served {
    std::uint32_t clock = 0;
    std::uint32_t in_phase = 0;  ///< steps of this phase
    bool computes = false;       ///< owes a gradient
    double since_us = 0;         ///< when it was given what it computes with
    std::vector<float> slot;
    AnswerHead head;
    std::vector<Request> sending;
  };
  int receive();
  void take_gradient(int from);
  void make_room(int from);
  void take(int worker);
  void update(int gradients);
  [[nodiscard]] bool may_go_on(const Served& served) const;
  void release(std::uint64_t budget);
  void answer(int worker, UpdateEvent::Kind kind);
  void settle(Served& served);
  [[nodiscard]] std::vector<int> owing() const;
  [[nodiscard]] std::vector<int> awaited() const;
  /// Of those awaited, one that has been silent for too long; or nobody.
  [[nodiscard]] std::optional<int> overdue() const;
  void serve_as(const TrainingSpec& leg);
  [[nodiscard]] int rank_of(int worker) const { return first_worker_ + worker * whole_.group_size; }

  Messages& comm_;
  TrainingSpec whole_;
  TrainingSpec spec_;  ///< how workers wait now
  Micros silence_;
  bool first_;  ///< of the servers
  int first_worker_;
  int workers_;  ///< groups, where there are any
  const UpdatePolicy* policy_ = nullptr;
  int wanted_ = 1;  ///< gradients of an update
  std::vector<float> weights_;
  std::vector<float> velocity_;
  std::vector<float> sum_;
  std::vector<float> gradient_;
  std::optional<MessageDecoder> decoder_;  ///< of what is encoded
  std::vector<std::uint8_t> frames_;       ///< of the gradient that came last
  std::vector<Served> served_;
  std::vector<int> waiting_;   ///< in the order in which they came
  std::uint64_t allowed_ = 0;  ///< steps of this phase that workers were let begin
  std::uint32_t version_ = 0;
  int summed_ = 0;
  int turn_ = 0;  ///< staggered: whose gradient is the next
  PushHead head_;
  double update_us_ = 0;
  double decode_us_ = 0;
  UpdateLog log_;
  std::uint64_t sent_bytes_ = 0;
};

/// A worker's side. Ranks: all workers, while the server serves.
class UpdateWorker {
 public:
  /// @param timeout after which a server that has not answered is taken for lost: it waits for
  /// others, for the time of a silence each
  UpdateWorker(Messages& comm, const ExchangePlan& plan, const TrainingSpec& spec,
               TrainingWorker& worker, Micros timeout);
  ~UpdateWorker();
  UpdateWorker(const UpdateWorker&) = delete;
  UpdateWorker& operator=(const UpdateWorker&) = delete;
  /// The worker is at the start: the server takes the first one's weights.
  void start();
  /// Steps until the server ends the phase. @returns their times
  std::vector<StepTimes> work();
  /// Of so many steps of a phase the calls are kept.
  static constexpr std::size_t kMostSteps = 10'000;
  /// Its calls in each of the first steps of the last phase.
  [[nodiscard]] const std::vector<StepCalls>& calls() const { return calls_; }
  /// How many calls there were in the steps after those.
  [[nodiscard]] std::size_t calls_left_out() const { return calls_left_out_; }
  [[nodiscard]] std::uint64_t sent_bytes() const {
    return sent_bytes_ + (group_ ? group_->sent_bytes() : 0);
  }
  [[nodiscard]] std::size_t held_bytes() const {
    return worker_.answer_bytes() + (group_ ? group_->held_bytes() : 0) +
           (messages_ ? messages_->state_bytes() + frames_.size() : 0);
  }
  /// Since the last call; nullopt where nothing is encoded.
  std::optional<CodingFigures> take_coding();
  /// Of messages within the group.
  std::optional<CodingFigures> take_group_coding() {
    return group_ ? group_->take_coding() : std::nullopt;
  }

 private:
  /// One server's next answer.
  void receive(int server, std::vector<std::pair<Request, int>>& open);
  void ask_servers();
  /// Notes a call of this step that began at `start_us` and ends now. @returns now
  double note(const char* what, double start_us, std::size_t bytes);
  std::pair<const void*, std::size_t> message();

  Messages& comm_;
  TrainingWorker& worker_;
  MessageBuffers buffers_;
  std::optional<MessageCodec> messages_;  ///< where gradients are encoded
  std::vector<std::uint8_t> frames_;
  std::size_t count_;
  std::vector<Shard> shards_;  ///< of each server
  std::optional<WorkerGroup> group_;
  std::uint32_t number_;  ///< of the group, where there are any
  Micros timeout_;
  // What the library may read and write when an error ends the cell.
  PushHead push_;
  std::vector<AnswerHead> answers_;  ///< of each server
  std::uint32_t clock_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::vector<StepCalls> calls_;
  std::size_t calls_left_out_ = 0;
  StepCalls noted_;  ///< of the step that goes on
};

}  // namespace dynamiccl
