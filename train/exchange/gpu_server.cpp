#include "train/exchange/gpu_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "train/exchange/gpu_pushes.hpp"
#include "train/exchange/server_kernels.hpp"
#include "workers/device/device.hpp"
#include "workers/standing.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// Floats of a GPU, zeroed.
class DeviceFloats {
 public:
  DeviceFloats() = default;
  DeviceFloats(Device& device, std::size_t count)
      : memory_(count > 0 ? device.allocate(count * sizeof(float)) : nullptr), count_(count) {}
  [[nodiscard]] float* at(std::size_t offset) const {
    return reinterpret_cast<float*>(memory_.get()) + offset;
  }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(float); }

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t count_ = 0;
};

void check_kernel(const char* failure) {
  if (failure != nullptr)
    throw Error(ErrorKind::environment, fmt::format("a server's sum on its GPU: {}", failure));
}

class GpuServer final : public StepServer {
 public:
  GpuServer(Communicator& comm, const ExchangePlan& plan)
      : comm_(comm), plan_(plan), workers_(comm.size() - plan.servers) {
    for (const Piece& piece : plan_.pieces) {
      offsets_.push_back(shard_elements_);
      if (piece.server != comm.rank()) continue;
      shard_elements_ += piece.count;
      largest_ = std::max(largest_, piece.count);
    }
    const std::size_t slots = largest_ * static_cast<std::size_t>(workers_);
    if (slots > static_cast<std::size_t>(std::numeric_limits<int>::max()))
      throw Error(ErrorKind::input,
                  fmt::format("server_sums = \"gpu\": {} workers' pieces of {} elements are more "
                              "than one call counts; take a smaller partition",
                              workers_, largest_));
    slots_ = DeviceFloats(*comm_.device(), slots);
    answers_ = DeviceFloats(*comm_.device(), plan_.server_sgd ? shard_elements_ : largest_);
    if (plan_.server_sgd) velocity_ = DeviceFloats(*comm_.device(), shard_elements_);
  }

  void take_weights() override {
    if (!plan_.server_sgd) return;
    velocity_ = DeviceFloats(*comm_.device(), shard_elements_);
    std::vector<float> weights(largest_);
    for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
      const Piece& piece = plan_.pieces[i];
      if (!is_own(piece)) continue;
      const std::size_t bytes = piece.count * sizeof(float);
      comm_.wait(
          comm_.irecv(weights.data(), bytes, plan_.servers, kPieceTag + static_cast<int>(i)));
      comm_.device()->copy_to_device(answers_.at(offsets_[i]), weights.data(), bytes);
    }
  }

  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const override {
    return slots_.bytes() + answers_.bytes();
  }
  [[nodiscard]] std::size_t shard_bytes() const override { return shard_elements_ * sizeof(float); }

 private:
  double serve_step() override {
    stand_at_next(Standpoint::gradients);
    std::size_t sums = 0;
    for (std::size_t number = 0; number <= plan_.pieces.size(); ++number) {
      call(number);
      if (number < plan_.pieces.size() && is_own(plan_.pieces[number])) sum(number, sums++);
    }
    comm_.complete();
    double sum_us = 0;
    for (std::size_t i = 0; i < sums; ++i) sum_us += comm_.queue()->between_us(2 * i, 2 * i + 1);
    return sum_us;
  }
  [[nodiscard]] bool is_own(const Piece& piece) const { return piece.server == comm_.rank(); }
  /// Its shard of the weights, or the one sum that is on its way.
  [[nodiscard]] float* answer(std::size_t piece) const {
    return answers_.at(plan_.server_sgd ? offsets_[piece] : 0);
  }
  void call(std::size_t number) {
    const auto [pushed, pulled] = served_call(plan_, number);
    const std::vector<int> none(static_cast<std::size_t>(comm_.size()), 0);
    PairCounts counts{none, none, none, none};
    const float* sent = answers_.at(0);
    for (int worker = 0; worker < workers_; ++worker) {
      const auto rank = static_cast<std::size_t>(plan_.servers + worker);
      if (pushed != nullptr && is_own(*pushed)) {
        counts.receive[rank] = static_cast<int>(pushed->count);
        counts.receive_at[rank] = worker * static_cast<int>(largest_);
      }
      if (pulled != nullptr && is_own(*pulled)) {
        sent = answer(number - 1);
        counts.send[rank] = static_cast<int>(pulled->count);
        sent_bytes_ += pulled->count * sizeof(float);
      }
    }
    comm_.alltoallv(sent, slots_.at(0), counts, DataType::float32);
  }
  /// Queued behind the call that brings the piece, before the one that takes its sum.
  void sum(std::size_t piece, std::size_t number) {
    GpuQueue& queue = *comm_.queue();
    void* stream = queue.own_stream();
    const std::size_t count = plan_.pieces[piece].count;
    queue.stamp(2 * number);
    // An optimizer's answer is its weights: it adds up in the first worker's slot.
    float* sum = plan_.server_sgd ? slots_.at(0) : answer(piece);
    check_kernel(kernels::add_slots(slots_.at(0), largest_, workers_, count, sum, stream));
    if (plan_.server_sgd)
      check_kernel(kernels::update_served(
          plan_.server_sgd->rate, plan_.server_sgd->momentum, static_cast<float>(1.0 / workers_),
          sum, velocity_.at(offsets_[piece]), answer(piece), count, stream));
    queue.stamp(2 * number + 1);
  }

  Communicator& comm_;
  ExchangePlan plan_;
  int workers_;
  std::vector<std::size_t> offsets_;  ///< of each piece, where it is this server's, in its shard
  std::size_t shard_elements_ = 0;
  std::size_t largest_ = 0;  ///< of its pieces
  DeviceFloats slots_;
  DeviceFloats answers_;
  DeviceFloats velocity_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace

Outliving<StepServer> make_gpu_server(Communicator& comm, const ExchangePlan& plan) {
  return make_outliving<GpuServer>(comm, plan);
}

}  // namespace dynamiccl
