#include "workers/train/exchange/staged.hpp"

namespace dynamiccl {
namespace {

class StagedReducer final : public Reducer {
 public:
  StagedReducer(Communicator& comm, const ExchangePlan& plan, const float* gradients, float* sums,
                TensorMemory& memory)
      : plan_(plan), gradients_(gradients), sums_(sums), memory_(memory) {
    host_gradients_.resize(memory, plan.elements());
    // Servers answer while other pieces are still being sent.
    if (plan.servers > 0) host_sums_.resize(memory, plan.elements());
    inner_ = make_reducer(comm, plan, host_gradients_.data(), host_sums());
  }

  void begin_step() override { inner_->begin_step(); }
  void finish_step() override { inner_->finish_step(); }
  void take_weights(const float* weights) override { inner_->take_weights(weights); }
  bool start(std::size_t piece) override {
    // The one thread that calls.
    if (!beside_) memory_.leave_computation();
    beside_ = true;
    const Piece& at = plan_.pieces[piece];
    memory_.to_host(gradients_ + at.offset, host_gradients_.at(at.offset), at.count);
    const bool done = inner_->start(piece);
    sent_bytes_ = inner_->sent_bytes();
    if (done && !inner_->second_pass()) bring(piece);
    return done;
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
  [[nodiscard]] std::size_t staging_bytes() const override {
    return (host_gradients_.size() + host_sums_.size()) * sizeof(float) + inner_->extra_bytes();
  }

 private:
  float* host_sums() { return host_sums_.empty() ? host_gradients_.data() : host_sums_.data(); }
  void bring(std::size_t piece) {
    const Piece& at = plan_.pieces[piece];
    memory_.from_host(host_sums() + at.offset, sums_ + at.offset, at.count);
  }

  const ExchangePlan& plan_;
  const float* gradients_;
  float* sums_;
  TensorMemory& memory_;
  HostBuffer host_gradients_;
  HostBuffer host_sums_;
  std::unique_ptr<Reducer> inner_;
  bool beside_ = false;
};

}  // namespace

bool goes_by_host(const ExchangePlan& plan) {
  return plan.servers > 0 || plan.method == TrainingMethod::dear || plan.packing != Packing::none ||
         plan.path.by_host;
}

std::unique_ptr<Reducer> make_staged_reducer(Communicator& comm, const ExchangePlan& plan,
                                             const float* gradients, float* sums,
                                             TensorMemory& memory) {
  return std::make_unique<StagedReducer>(comm, plan, gradients, sums, memory);
}

}  // namespace dynamiccl
