#include "train/exchange/colocated.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "train/exchange/agreed_order.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// One thread pushes, sums and pulls. It waits for the others' gradients when it has its own, which
/// ends because all ranks start pieces in one order: who has not pushed a piece yet waits for an
/// earlier one at most, and that has been pushed to him.
class Colocated final : public Reducer {
 public:
  Colocated(Messages& comm, const ExchangePlan& plan, float* gradients, float* sums,
            std::unique_ptr<Reducer> push_pull, MessageCodec* messages)
      : comm_(comm),
        plan_(plan),
        gradients_(gradients),
        sums_(sums),
        messages_(messages),
        push_pull_(std::move(push_pull)),
        order_(comm, plan.pieces.size()),
        places_(plan.pieces.size(), 0) {
    for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
      if (!is_own(i)) continue;
      places_[i] = shard_elements_;
      shard_elements_ += plan.pieces[i].count;
    }
    if (messages_ != nullptr) {
      decoder_.emplace(plan_);
      frames_.resize(plan.pieces.size());
    }
    // Of encoded gradients the sum alone.
    const int slots = decoder_ ? 1 : comm.size() - 1;
    slots_.resize(shard_elements_ * static_cast<std::size_t>(slots));
    if (!plan.server_sgd) return;
    weights_.resize(shard_elements_);
    velocity_.resize(shard_elements_);
  }

  void begin_step() override {
    // All of a step's pieces have a place before the first comes: no worker waits for another's.
    receiving_.assign(plan_.pieces.size(), {});
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
      if (!is_own(i)) continue;
      ++to_sum_;
      if (decoder_) frames_[i].resize(static_cast<std::size_t>(comm_.size()));
      for (int worker = 0; worker < comm_.size(); ++worker) {
        const bool is_other = worker != comm_.rank();
        receiving_[i].push_back(is_other ? receive(i, worker) : Request{});
      }
    }
  }

  bool start(std::size_t index) override {
    const bool done = is_own(index) ? sum_and_answer(index) : push_pull_->start(index);
    sent_bytes_ = push_pull_->sent_bytes() + answered_bytes_;
    return done;
  }

  std::size_t finish_oldest() override { return push_pull_->finish_oldest(); }
  [[nodiscard]] std::size_t pushing_bytes() const override { return push_pull_->pushing_bytes(); }
  void finish_push() override { push_pull_->finish_push(); }
  void progress() override { comm_.progress(); }
  void finish_step() override {
    for (const Request request : answers_) comm_.wait(request);
    answers_.clear();
  }
  [[nodiscard]] bool idle() const override {
    return push_pull_->idle() && answers_.empty() && to_sum_ == 0;
  }
  [[nodiscard]] bool chooses() const override { return order_.chooses(); }
  void agree(std::vector<std::size_t>& chosen) override { order_.agree(chosen); }

  void take_weights(const float* weights) override {
    std::fill(velocity_.begin(), velocity_.end(), 0.0F);
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i)
      if (is_own(i))
        std::copy_n(weights + plan_.pieces[i].offset, plan_.pieces[i].count, &weights_[places_[i]]);
  }
  [[nodiscard]] std::size_t extra_bytes() const override {
    std::size_t bytes = (slots_.size() + weights_.size()) * sizeof(float);
    for (const auto& of_piece : frames_)
      for (const auto& frames : of_piece) bytes += frames.size();
    return bytes + push_pull_->extra_bytes();
  }

 private:
  [[nodiscard]] bool is_own(std::size_t piece) const {
    return plan_.pieces[piece].server == comm_.rank();
  }
  [[nodiscard]] bool in_place() const { return gradients_ == sums_; }
  [[nodiscard]] std::size_t bytes_of(std::size_t piece) const {
    return plan_.pieces[piece].count * sizeof(float);
  }
  static int tag(std::size_t piece) { return kPieceTag + static_cast<int>(piece); }
  /// Where another worker's gradients of a piece come.
  float* slot(std::size_t piece, int worker) {
    const int row = worker < comm_.rank() ? worker : worker - 1;
    return slots_.data() + static_cast<std::size_t>(row) * shard_elements_ + places_[piece];
  }
  const float* part_of(std::size_t piece, int worker) {
    if (worker == comm_.rank()) return gradients_ + plan_.pieces[piece].offset;
    comm_.wait(receiving_[piece][static_cast<std::size_t>(worker)]);
    return slot(piece, worker);
  }

  Request receive(std::size_t piece, int worker) {
    if (!decoder_) return comm_.irecv(slot(piece, worker), bytes_of(piece), worker, tag(piece));
    auto& frames = frames_[piece][static_cast<std::size_t>(worker)];
    frames.resize(messages_->frame_limit(piece));
    return comm_.irecv(frames.data(), frames.size(), worker, tag(piece));
  }
  /// In the first slot: every worker's frames in rank order, this one's own among them.
  const float* decoded_sum(std::size_t index) {
    auto& own = frames_[index][static_cast<std::size_t>(comm_.rank())];
    own.resize(messages_->frame_limit(index));
    messages_->encode(index, gradients_, own.data());  // not counted: it goes nowhere
    float* sum = slots_.data() + places_[index];
    std::fill_n(sum, plan_.pieces[index].count, 0.0F);
    for (int worker = 0; worker < comm_.size(); ++worker) {
      const auto at = static_cast<std::size_t>(worker);
      if (worker != comm_.rank()) comm_.wait(receiving_[index][at]);
      const auto& frames = frames_[index][at];
      messages_->timed(&CodingFigures::decode_us, [&] {
        decoder_->add(index, messages_->codec().step(), frames.data(), frames.size(), sum);
      });
    }
    decoder_->conclude(index, comm_.size(), sum);
    return sum;
  }

  const float* plain_sum(std::size_t index) {
    const Piece& piece = plan_.pieces[index];
    float* answer = sums_ + piece.offset;
    const float* sum = part_of(index, 0);
    for (int worker = 1; worker < comm_.size(); ++worker) {
      // The answer's place may be that of this worker's own gradients, or hold weights.
      const bool early = worker < comm_.rank() || in_place() || plan_.server_sgd.has_value();
      float* into = early ? slot(index, comm_.rank() == 0 ? 1 : 0) : answer;
      sum_elements(into, sum, part_of(index, worker), piece.count, DataType::float32);
      sum = into;
    }
    return sum;
  }

  bool sum_and_answer(std::size_t index) {
    const Piece& piece = plan_.pieces[index];
    float* answer = sums_ + piece.offset;
    const float* sum = decoder_ ? decoded_sum(index) : plain_sum(index);
    // Whoever waits for the answer here may overwrite it while it is still being sent.
    const float* sent = in_place() || decoder_ ? sum : answer;
    if (plan_.server_sgd) {
      float* weights = &weights_[places_[index]];
      sgd_update(*plan_.server_sgd, weights, &velocity_[places_[index]], sum,
                 static_cast<float>(1.0 / comm_.size()), piece.count);
      sent = sum = weights;
    }
    if (sum != answer) std::copy_n(sum, piece.count, answer);
    for (int worker = 0; worker < comm_.size(); ++worker) {
      if (worker == comm_.rank()) continue;
      answers_.push_back(comm_.isend(sent, bytes_of(index), worker, tag(index)));
      answered_bytes_ += bytes_of(index);
    }
    --to_sum_;
    return true;
  }

  Messages& comm_;
  const ExchangePlan& plan_;
  float* gradients_;
  float* sums_;
  MessageCodec* messages_;  ///< nullptr: plain values
  std::unique_ptr<Reducer> push_pull_;
  AgreedOrder order_;
  std::vector<std::size_t> places_;  ///< of each piece in this rank's shard
  std::size_t shard_elements_ = 0;
  std::vector<float> slots_;               ///< the shard once per other worker, in rank order
  std::optional<MessageDecoder> decoder_;  ///< of what is encoded
  std::vector<std::vector<std::vector<std::uint8_t>>> frames_;  ///< by piece and worker
  std::vector<float> weights_;  ///< of the shard, where the server is the optimizer
  std::vector<float> velocity_;
  std::vector<std::vector<Request>> receiving_;  ///< by piece and worker
  std::vector<Request> answers_;
  std::size_t to_sum_ = 0;  ///< pieces of this step that are not summed
  std::uint64_t answered_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Reducer> make_colocated_reducer(Messages& comm, const ExchangePlan& plan,
                                                float* gradients, float* sums,
                                                std::unique_ptr<Reducer> push_pull,
                                                MessageCodec* messages) {
  return std::make_unique<Colocated>(comm, plan, gradients, sums, std::move(push_pull), messages);
}

}  // namespace dynamiccl
