#include "train/exchange/servers.hpp"

#include <algorithm>

#include "train/exchange/gpu_server.hpp"
#include "train/exchange/gradient_server.hpp"
#include "workers/clock.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// A server without a GPU behind a chief, whose library summed what workers pushed: it keeps the
/// sum, in host memory, and gives it back, or the weights that it updates with it.
class ChiefServer final : public StepServer {
 public:
  ChiefServer(Communicator& comm, const ExchangePlan& plan)
      : comm_(comm), plan_(plan), workers_(comm.size() - plan.servers) {
    std::size_t largest = 0;
    for (const Piece& piece : plan_.pieces) largest = std::max(largest, piece.count);
    sum_.resize(largest);
    if (!plan_.server_sgd) return;
    weights_.resize(plan_.elements());
    velocity_.resize(plan_.elements());
  }

  void take_weights() override {
    if (!plan_.server_sgd) return;
    std::fill(velocity_.begin(), velocity_.end(), 0.0F);
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i)
      comm_.wait(comm_.irecv(&weights_[plan_.pieces[i].offset],
                             plan_.pieces[i].count * sizeof(float), plan_.servers,
                             kPieceTag + static_cast<int>(i)));
  }

  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const override {
    return (sum_.size() + weights_.size()) * sizeof(float);
  }
  [[nodiscard]] std::size_t shard_bytes() const override {
    return plan_.elements() * sizeof(float);
  }

 private:
  double serve_step() override {
    double sum_us = 0;
    for (const Piece& piece : plan_.pieces) {
      comm_.reduce(nullptr, sum_.data(), piece.count, DataType::float32, comm_.rank());
      const double start_us = now_us();
      float* answer = answer_of(piece);
      sum_us += now_us() - start_us;
      comm_.broadcast(answer, piece.count, DataType::float32, comm_.rank());
      sent_bytes_ += piece.count * sizeof(float);
    }
    return sum_us;
  }
  float* answer_of(const Piece& piece) {
    if (!plan_.server_sgd) return sum_.data();
    sgd_update(*plan_.server_sgd, &weights_[piece.offset], &velocity_[piece.offset], sum_.data(),
               static_cast<float>(1.0 / workers_), piece.count);
    return &weights_[piece.offset];
  }

  Communicator& comm_;
  ExchangePlan plan_;
  int workers_;
  std::vector<float> sum_;  ///< of one piece
  std::vector<float> weights_;
  std::vector<float> velocity_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace

Outliving<StepServer> make_gradient_server(Communicator& comm, const ExchangePlan& plan) {
  switch (plan.server_sums) {
    case ServerSums::gpu:
      return make_gpu_server(comm, plan);
    case ServerSums::chief:
      return make_outliving<ChiefServer>(comm, plan);
    case ServerSums::host:
      break;
  }
  return make_outliving<GradientServer>(comm, plan);
}

}  // namespace dynamiccl
