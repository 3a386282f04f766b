#pragma once

#include <cstdint>
#include <vector>

#include "workers/messages.hpp"
#include "workers/train/exchange/exchange_plan.hpp"
#include "workers/train/exchange/step_server.hpp"

namespace dynamiccl {

/// The first worker's weights, in the buffer's order, to dedicated servers that are optimizers.
/// They are in GradientServer::take_weights() meanwhile.
void send_weights(Messages& comm, const ExchangePlan& plan, const float* weights);

/// A dedicated server's side: sums every worker's pieces in rank order, so that sums are the same
/// bits in every run, and sends them back, or the weights that it updates with them. Holds one slot
/// per worker and the answer: (N + 1) times its shard, and momentum where it is the optimizer.
class GradientServer final : public StepServer {
 public:
  GradientServer(Messages& comm, const ExchangePlan& plan);
  ~GradientServer() override;
  /// Takes the weights from the first worker's send_weights(), momentum 0; nothing where workers
  /// are the optimizers.
  void take_weights() override;
  std::vector<Step> serve(int steps) override;
  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const override { return buffer_.size() * sizeof(float); }
  [[nodiscard]] std::size_t shard_bytes() const override { return shard_elements_ * sizeof(float); }

 private:
  struct Shard;
  void post(std::size_t shard, int worker);
  void complete(std::size_t shard, Step& step);
  float* slot(std::size_t shard, int worker);

  Messages& comm_;
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
