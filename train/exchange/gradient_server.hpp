#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "train/codecs/message_codec.hpp"
#include "train/exchange/step_server.hpp"
#include "train/plan/exchange_plan.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// The first worker's weights, in the buffer's order, to dedicated servers that are optimizers.
/// They are in GradientServer::take_weights() meanwhile.
void send_weights(Messages& comm, const ExchangePlan& plan, const float* weights);

/// A dedicated server's side: sums every worker's pieces in rank order, so that sums are the same
/// bits in every run, and sends them back, or the weights that it updates with them. Holds one slot
/// per worker and the answer: (N + 1) times its shard, and momentum where it is the optimizer. What
/// workers encoded it decodes in rank order; answers are plain.
class GradientServer final : public StepServer {
 public:
  GradientServer(Messages& comm, const ExchangePlan& plan);
  ~GradientServer() override;
  /// Takes the weights from the first worker's send_weights(), momentum 0; nothing where workers
  /// are the optimizers.
  void take_weights() override;
  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const override;
  [[nodiscard]] std::size_t shard_bytes() const override { return shard_elements_ * sizeof(float); }

 private:
  struct Shard;
  void post(std::size_t shard, int worker);
  double serve_step() override;
  void complete_sends() override;
  /// @returns microseconds in which it summed
  double complete(std::size_t shard);
  void add_up(std::size_t shard, float* sum);
  float* slot(std::size_t shard, int worker);
  /// Where a worker's message of the shard comes: its frames, or plain values.
  std::pair<void*, std::size_t> place(std::size_t shard, int worker);

  Messages& comm_;
  ExchangePlan plan_;
  int workers_;
  std::vector<Shard> shards_;  ///< pieces of this server
  std::vector<std::size_t> shard_of_piece_;
  std::size_t shard_elements_ = 0;
  std::vector<float> buffer_;
  std::optional<MessageDecoder> decoder_;  ///< of what is encoded
  std::uint64_t step_ = 0;                 ///< since workers began
  std::vector<float> velocity_;            ///< of the shard, where the server is the optimizer
  std::vector<std::uint32_t> headers_;     ///< of a step: which piece comes, by round and worker
  std::vector<Request> header_requests_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dynamiccl
