#include "train/exchange/staged.hpp"

#include <algorithm>

#include "train/exchange/reducers.hpp"

namespace dynamiccl {
namespace {

/// What is copied at once, elements: long against starting a copy, short against a large piece, the
/// rest of which is summed or copied meanwhile.
constexpr std::size_t kChunk = 1U << 20;

/// Numbers of copies: two to the host under way at once, one from there is waited for at the end.
constexpr std::size_t kToHost = 2;
constexpr std::size_t kBack = kToHost;

bool is_whole_sum(const ExchangePlan& plan) {
  return plan.servers == 0 && !method_row(plan.method).split;
}

/// The plan in host memory: where a sum is there when its call returns, large pieces go in chunks;
/// but what is encoded goes whole.
ExchangePlan chunked(const ExchangePlan& plan) {
  ExchangePlan chunks = plan;
  if (!is_whole_sum(plan) || plan.codec.codec != Codec::none) return chunks;
  chunks.pieces.clear();
  for (const Piece& piece : plan.pieces) {
    for (std::size_t at = 0; at < piece.count; at += kChunk) {
      chunks.pieces.push_back(piece);
      chunks.pieces.back().offset += at;
      chunks.pieces.back().count = std::min(kChunk, piece.count - at);
    }
  }
  return chunks;
}

class StagedReducer final : public Reducer {
 public:
  StagedReducer(Communicator& comm, const ExchangePlan& plan, const float* gradients, float* sums,
                TensorMemory& memory)
      : chunks_(chunked(plan)), gradients_(gradients), sums_(sums), memory_(memory) {
    std::size_t chunk = 0;
    for (const Piece& piece : plan.pieces) {
      first_.push_back(chunk);
      while (chunk < chunks_.pieces.size() &&
             chunks_.pieces[chunk].offset < piece.offset + piece.count)
        ++chunk;
    }
    first_.push_back(chunk);
    host_.resize(memory, plan.elements());
    inner_ = make_reducer(comm, chunks_, host_.data(), host_.data());
  }

  void begin_step() override { inner_->begin_step(); }
  void finish_step() override { inner_->finish_step(); }
  void take_weights(const float* weights) override { inner_->take_weights(weights); }
  void restart() override { inner_->restart(); }
  std::optional<CodingFigures> take_coding() override { return inner_->take_coding(); }
  /// A chunk goes to the host while the one before it is summed and the one before that goes back.
  bool start(std::size_t piece) override {
    // One thread makes all calls: from its first one on it copies during the computation.
    if (!beside_) memory_.leave_computation();
    beside_ = true;
    bool is_summed = false;
    fetch(first_[piece]);
    for (std::size_t chunk = first_[piece]; chunk < first_[piece + 1]; ++chunk) {
      if (chunk + 1 < first_[piece + 1]) fetch(chunk + 1);
      memory_.copied(chunk % kToHost);
      is_summed = inner_->start(chunk) && !inner_->second_pass();
      if (is_summed) start_back(chunk);
    }
    sent_bytes_ = inner_->sent_bytes();
    if (is_summed) memory_.copied(kBack);
    return is_summed || inner_->second_pass();
  }
  std::size_t finish_oldest() override {
    const std::size_t piece = inner_->finish_oldest();
    bring(piece);
    return piece;
  }
  bool second_pass() override { return inner_->second_pass(); }
  void second(std::size_t piece) override {
    inner_->second(piece);
    sent_bytes_ = inner_->sent_bytes();
    bring(piece);
  }

  [[nodiscard]] std::size_t pushing_bytes() const override { return inner_->pushing_bytes(); }
  void finish_push() override { inner_->finish_push(); }
  void progress() override { inner_->progress(); }
  [[nodiscard]] bool idle() const override { return inner_->idle(); }
  void agree(std::vector<std::size_t>& chosen) override { inner_->agree(chosen); }
  [[nodiscard]] bool chooses() const override { return inner_->chooses(); }
  [[nodiscard]] std::size_t extra_bytes() const override { return inner_->extra_bytes(); }
  [[nodiscard]] std::size_t staging_bytes() const override { return host_.size() * sizeof(float); }

 private:
  void fetch(std::size_t chunk) {
    const Piece& at = chunks_.pieces[chunk];
    memory_.start_to_host(gradients_ + at.offset, host_.at(at.offset), at.count, chunk % kToHost);
  }
  void start_back(std::size_t chunk) {
    const Piece& at = chunks_.pieces[chunk];
    memory_.start_from_host(host_.at(at.offset), sums_ + at.offset, at.count, kBack);
  }
  /// Where pieces go whole.
  void bring(std::size_t piece) {
    start_back(piece);
    memory_.copied(kBack);
  }

  ExchangePlan chunks_;
  std::vector<std::size_t> first_;  ///< chunk of each piece, and the end of them
  const float* gradients_;
  float* sums_;
  TensorMemory& memory_;
  HostBuffer host_;  ///< gradients, replaced by their sums
  std::unique_ptr<Reducer> inner_;
  bool beside_ = false;
};

}  // namespace

bool goes_by_host(const ExchangePlan& plan) {
  return (plan.servers > 0 && plan.server_sums == ServerSums::host) ||
         method_row(plan.method).split || plan.packing != Packing::none || plan.path.by_host ||
         (plan.codec.codec != Codec::none &&
          (is_encoded_by_host(plan.codec) || method_row(plan.method).sums == SumPlace::neighbours));
}

std::unique_ptr<Reducer> make_staged_reducer(Communicator& comm, const ExchangePlan& plan,
                                             const float* gradients, float* sums,
                                             TensorMemory& memory) {
  return std::make_unique<StagedReducer>(comm, plan, gradients, sums, memory);
}

}  // namespace dynamiccl
