#include "train/exchange/reducers.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "train/codecs/message_codec.hpp"
#include "train/exchange/agreed_order.hpp"
#include "train/exchange/coded_reducer.hpp"
#include "train/exchange/colocated.hpp"
#include "train/exchange/gpu_pushes.hpp"
#include "train/exchange/lanes.hpp"
#include "train/exchange/ring_halves.hpp"
#include "workers/aggregation/aggregation_link.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// The library's all-reduce, an aggregator's, or our own: of packed values, or where it is faster.
/// All ranks take one order where the method has one of its own: ranks that call in different
/// orders would add different pieces.
class AllReduce final : public Reducer {
 public:
  AllReduce(Communicator& comm, const ExchangePlan& plan, float* gradients, CallSettings* settings)
      : comm_(comm),
        plan_(plan),
        gradients_(gradients),
        stripes_(stripes_of(plan, comm.size())),
        order_(comm, plan.pieces.size()),
        settings_(settings) {
    if (plan.packing == Packing::exponents || plan.path.own_ring)
      ring_.emplace(comm, plan, gradients);
  }

  void begin_step() override {
    if (settings_ != nullptr && comm_.size() > 1) settings_->begin_step();
  }

  bool start(std::size_t index) override {
    if (ring_) {
      ring_->all_reduce(index);
      sent_bytes_ = ring_->sent_bytes();
      return true;
    }
    if (plan_.path.aggregation != nullptr) return aggregate(plan_.pieces[index]);
    if (comm_.size() > 1) sum(index);
    comm_.complete();  // who waits for the sum reads it at once
    const auto ranks = static_cast<std::uint64_t>(comm_.size());
    sent_bytes_ += 2 * plan_.pieces[index].count * sizeof(float) * (ranks - 1) / ranks;
    return true;
  }

  [[nodiscard]] std::size_t extra_bytes() const override {
    return ring_ ? ring_->extra_bytes() : 0;
  }
  [[nodiscard]] bool chooses() const override { return order_.chooses(); }
  void agree(std::vector<std::size_t>& chosen) override { order_.agree(chosen); }

 private:
  bool aggregate(const Piece& piece) {
    float* data = gradients_ + piece.offset;
    try {
      plan_.path.aggregation->allreduce(data, data, piece.count, DataType::float32);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      // All ranks learn that some number is not finite, and fixed point has no sum of it: the cell
      // says that it diverged, as it would of any other sum.
      std::fill_n(data, piece.count, std::numeric_limits<float>::quiet_NaN());
    }
    sent_bytes_ += piece.count * sizeof(float);
    return true;
  }

  void sum(std::size_t index) {
    if (settings_ != nullptr) {
      const Piece& piece = plan_.pieces[index];
      return settings_->all_reduce(index, gradients_ + piece.offset, piece.count);
    }
    GpuOrder* queue = plan_.path.lanes > 1 ? comm_.queue() : nullptr;
    for (const Stripe& stripe : stripes_[index]) {
      if (queue != nullptr) queue->use_lane(stripe.lane);
      float* data = gradients_ + stripe.offset;
      comm_.allreduce(data, data, stripe.count, DataType::float32);
    }
    if (queue != nullptr) queue->use_lane(0);
  }

  Communicator& comm_;
  const ExchangePlan& plan_;
  float* gradients_;
  std::vector<std::vector<Stripe>> stripes_;  ///< of each piece: one where there is one lane
  std::optional<RingHalves> ring_;            ///< our own
  AgreedOrder order_;
  CallSettings* settings_;
};

/// An all-reduce in two halves (DeAR): a ring of reduce-scatters, later a ring of all-gathers.
class SplitAllReduce final : public Reducer {
 public:
  SplitAllReduce(Messages& comm, const ExchangePlan& plan, float* gradients)
      : ring_(comm, plan, gradients) {}

  bool start(std::size_t index) override {
    ring_.reduce_scatter(index);
    sent_bytes_ = ring_.sent_bytes();
    return true;
  }
  bool second_pass() override { return true; }
  void second(std::size_t index) override {
    ring_.all_gather(index);
    sent_bytes_ = ring_.sent_bytes();
  }
  [[nodiscard]] std::size_t extra_bytes() const override { return ring_.extra_bytes(); }

 private:
  RingHalves ring_;
};

/// Push to the piece's server, pull of the sum. Several pieces are under way at once. A dedicated
/// server learns which piece comes: workers push in orders of their own. Where gradients are
/// encoded, that is what is pushed; answers are plain.
class PushPull final : public Reducer {
 public:
  /// @param messages of this worker, who begins their steps and counts; nullptr: plain values
  PushPull(Messages& comm, const ExchangePlan& plan, float* gradients, float* sums,
           MessageCodec* messages)
      : comm_(comm),
        plan_(plan),
        gradients_(gradients),
        sums_(sums),
        messages_(messages),
        headers_(plan.pieces.size()),
        frames_(messages == nullptr ? 0 : plan.pieces.size()) {}

  bool start(std::size_t index) override {
    // Answers come in while later pieces go out, as far as their places are free.
    while (in_place() && pushing() >= kPushedAtOnce) finish_push();
    const Piece& piece = plan_.pieces[index];
    const auto [pushed, bytes] = message_of(index);
    const int tag = kPieceTag + static_cast<int>(index);
    headers_[index] = static_cast<std::uint32_t>(index);
    Open open;
    open.piece = index;
    // The answer's place is ready before the server can have it, unless it is being sent.
    if (!in_place()) take_answer(open);
    if (!plan_.colocated)
      open.header = comm_.isend(&headers_[index], sizeof headers_[index], piece.server, kPushTag);
    open.bytes = bytes;
    open.push = comm_.isend(pushed, bytes, piece.server, tag);
    open_.push_back(open);
    sent_bytes_ += bytes;
    pushing_bytes_ += bytes;
    return false;
  }

  [[nodiscard]] std::size_t pushing_bytes() const override { return pushing_bytes_; }
  void finish_push() override {
    const auto oldest = std::find_if(open_.begin(), open_.end(), is_pushed_still);
    if (oldest != open_.end()) finish_push(*oldest);
  }

  std::size_t finish_oldest() override {
    Open open = open_.front();
    open_.pop_front();
    if (!open.pushed) finish_push(open);
    comm_.wait(open.answer);
    return open.piece;
  }

  [[nodiscard]] bool idle() const override { return open_.empty(); }
  void progress() override { comm_.progress(); }
  [[nodiscard]] std::size_t extra_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& frames : frames_) bytes += frames.size();
    return bytes;
  }

 private:
  /// What is pushed of a piece.
  std::pair<const void*, std::size_t> message_of(std::size_t index) {
    const Piece& piece = plan_.pieces[index];
    if (messages_ == nullptr) return {gradients_ + piece.offset, piece.count * sizeof(float)};
    auto& frames = frames_[index];
    frames.resize(messages_->frame_limit(index));
    const std::size_t bytes = messages_->encode(index, gradients_, frames.data());
    messages_->count(index, bytes);
    return {frames.data(), bytes};
  }
  struct Open {
    std::size_t piece = 0;
    Request answer{};
    std::optional<Request> header;
    Request push{};
    std::size_t bytes = 0;  ///< pushed
    bool pushed = false;
  };
  /// Enough for the link to be in use while one is waited for.
  static constexpr std::ptrdiff_t kPushedAtOnce = 2;
  static bool is_pushed_still(const Open& open) { return !open.pushed; }
  [[nodiscard]] std::ptrdiff_t pushing() const {
    return std::count_if(open_.begin(), open_.end(), is_pushed_still);
  }
  /// What is encoded has left its place before it is sent.
  [[nodiscard]] bool in_place() const { return gradients_ == sums_ && messages_ == nullptr; }
  void take_answer(Open& open) {
    const Piece& piece = plan_.pieces[open.piece];
    open.answer = comm_.irecv(sums_ + piece.offset, piece.count * sizeof(float), piece.server,
                              kPieceTag + static_cast<int>(open.piece));
  }
  void finish_push(Open& open) {
    if (open.header) comm_.wait(*open.header);
    comm_.wait(open.push);
    open.pushed = true;
    if (in_place()) take_answer(open);
    pushing_bytes_ -= open.bytes;
  }

  Messages& comm_;
  const ExchangePlan& plan_;
  float* gradients_;
  float* sums_;
  MessageCodec* messages_;
  std::vector<std::uint32_t> headers_;
  std::vector<std::vector<std::uint8_t>> frames_;  ///< of each piece, while they are sent
  std::size_t pushing_bytes_ = 0;
  std::deque<Open> open_;
};

/// Pushes whose messages begin their steps and are counted together, whoever sends them.
class EncodedPushes final : public Reducer {
 public:
  EncodedPushes(std::unique_ptr<MessageCodec> messages, std::unique_ptr<Reducer> pushes)
      : messages_(std::move(messages)), pushes_(std::move(pushes)) {}

  void begin_step() override {
    messages_->begin_step();
    pushes_->begin_step();
  }
  void finish_step() override { pushes_->finish_step(); }
  bool start(std::size_t piece) override {
    const bool done = pushes_->start(piece);
    sent_bytes_ = pushes_->sent_bytes();
    return done;
  }
  std::size_t finish_oldest() override { return pushes_->finish_oldest(); }
  [[nodiscard]] std::size_t pushing_bytes() const override { return pushes_->pushing_bytes(); }
  void finish_push() override { pushes_->finish_push(); }
  void progress() override { pushes_->progress(); }
  [[nodiscard]] bool idle() const override { return pushes_->idle(); }
  void agree(std::vector<std::size_t>& chosen) override { pushes_->agree(chosen); }
  [[nodiscard]] bool chooses() const override { return pushes_->chooses(); }
  void take_weights(const float* weights) override { pushes_->take_weights(weights); }
  void restart() override { messages_->restart(); }
  std::optional<CodingFigures> take_coding() override { return messages_->take_coding(); }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return messages_->state_bytes() + pushes_->extra_bytes();
  }

 private:
  std::unique_ptr<MessageCodec> messages_;
  std::unique_ptr<Reducer> pushes_;
};

}  // namespace

std::unique_ptr<Reducer> make_reducer(Communicator& comm, const ExchangePlan& plan,
                                      float* gradients, float* sums, CallSettings* settings) {
  if (plan.server_sums != ServerSums::host) return make_gpu_pushes(comm, plan, gradients);
  if (plan.servers > 0) {
    const int first = plan.first_worker();
    std::unique_ptr<MessageCodec> messages;
    if (plan.codec.codec != Codec::none)
      messages = std::make_unique<MessageCodec>(plan, comm.rank() - first, comm.size() - first);
    std::unique_ptr<Reducer> reducer =
        std::make_unique<PushPull>(comm, plan, gradients, sums, messages.get());
    if (plan.colocated)
      reducer =
          make_colocated_reducer(comm, plan, gradients, sums, std::move(reducer), messages.get());
    if (!messages) return reducer;
    return std::make_unique<EncodedPushes>(std::move(messages), std::move(reducer));
  }
  if (plan.codec.codec != Codec::none) return make_coded_reducer(comm, plan, gradients);
  if (method_row(plan.method).split) return std::make_unique<SplitAllReduce>(comm, plan, gradients);
  return std::make_unique<AllReduce>(comm, plan, gradients, settings);
}

}  // namespace dynamiccl
