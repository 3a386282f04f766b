#include "train/exchange/gpu_pushes.hpp"

#include <algorithm>
#include <vector>

namespace dynamiccl {
namespace {

/// Only queues: what a server sums of one piece overlaps the next one's way to it.
class PushesToGpu final : public Reducer {
 public:
  PushesToGpu(Communicator& comm, const ExchangePlan& plan, float* gradients)
      : comm_(comm),
        plan_(plan),
        gradients_(gradients),
        none_(static_cast<std::size_t>(comm.size()), 0) {}

  bool start(std::size_t piece) override {
    call(piece);
    sent_bytes_ += plan_.pieces[piece].count * sizeof(float);
    return false;
  }
  std::size_t finish_oldest() override {
    if (answered_ == 0) {
      call(plan_.pieces.size());
      comm_.complete();
    }
    const std::size_t piece = answered_++;
    if (answered_ == plan_.pieces.size()) answered_ = 0;
    return piece;
  }

 private:
  void call(std::size_t number) {
    const auto [pushed, pulled] = served_call(plan_, number);
    PairCounts counts{none_, none_, none_, none_};
    if (pushed != nullptr)
      counts.send[static_cast<std::size_t>(pushed->server)] = static_cast<int>(pushed->count);
    if (pulled != nullptr)
      counts.receive[static_cast<std::size_t>(pulled->server)] = static_cast<int>(pulled->count);
    comm_.alltoallv(gradients_ + (pushed != nullptr ? pushed->offset : 0),
                    gradients_ + (pulled != nullptr ? pulled->offset : 0), counts,
                    DataType::float32);
  }

  Communicator& comm_;
  const ExchangePlan& plan_;
  float* gradients_;
  std::vector<int> none_;
  std::size_t answered_ = 0;  ///< pieces of this step
};

/// Rooted calls: where the root has no GPU, the communicator's chief, the first worker, passes on
/// what the library reduced to it, and what comes back (NcclCommunicator). There it holds a sum on
/// its GPU and in page-locked memory, one at a time.
class PushesByChief final : public Reducer {
 public:
  PushesByChief(Communicator& comm, const ExchangePlan& plan, float* gradients)
      : comm_(comm),
        plan_(plan),
        gradients_(gradients),
        workers_(static_cast<std::uint64_t>(comm.size() - plan.first_worker())) {}

  bool start(std::size_t index) override {
    const Piece& piece = plan_.pieces[index];
    float* at = gradients_ + piece.offset;
    comm_.reduce(at, nullptr, piece.count, DataType::float32, piece.server);
    comm_.broadcast(at, piece.count, DataType::float32, piece.server);
    comm_.complete();  // who waits for the sum reads it at once
    sent_bytes_ += sent_of(piece.count * sizeof(float));
    return true;
  }
  [[nodiscard]] std::size_t extra_bytes() const override { return is_chief() ? largest() : 0; }
  [[nodiscard]] std::size_t staging_bytes() const override { return is_chief() ? largest() : 0; }

 private:
  [[nodiscard]] bool is_chief() const { return comm_.rank() == plan_.first_worker(); }
  [[nodiscard]] std::size_t largest() const {
    std::size_t most = 0;
    for (const Piece& piece : plan_.pieces) most = std::max(most, piece.count * sizeof(float));
    return most;
  }
  /// Along a chain of the workers, as NCCL's ring goes, each hands the sum on towards the chief and
  /// all but one the answer away from it. Who is the last in it is NCCL's choice: the others' mean.
  [[nodiscard]] std::uint64_t sent_of(std::uint64_t bytes) const {
    if (is_chief()) return workers_ > 1 ? 2 * bytes : bytes;
    return bytes + bytes * (workers_ - 2) / (workers_ - 1);
  }

  Communicator& comm_;
  const ExchangePlan& plan_;
  float* gradients_;
  std::uint64_t workers_;
};

}  // namespace

std::unique_ptr<Reducer> make_gpu_pushes(Communicator& comm, const ExchangePlan& plan,
                                         float* gradients) {
  if (plan.server_sums == ServerSums::chief)
    return std::make_unique<PushesByChief>(comm, plan, gradients);
  return std::make_unique<PushesToGpu>(comm, plan, gradients);
}

}  // namespace dynamiccl
