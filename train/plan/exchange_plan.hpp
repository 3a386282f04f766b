#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/plan/partition.hpp"
#include "train/plan/predict.hpp"
#include "train/plan/sgd.hpp"
#include "train/plan/trial.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

class AggregationLink;

/// How messages reach the library.
struct GradientPath {
  std::size_t lanes = 1;  ///< of the library's queue, where the exchange is queued
  /// A GPU's gradients are summed in host memory, though the library would take them where they
  /// lie.
  bool by_host = false;
  /// There our own ring sums them, not the library.
  bool own_ring = false;
  AggregationLink* aggregation = nullptr;  ///< sums them, where packing says so
};

/// A path that was tried, and what a message of the model's size took on it, the slowest rank's.
struct TriedPath {
  GradientPath path;
  std::size_t message_bytes;
  double message_us;
};

/// Whether a path saves enough to be taken instead of a plainer one: lanes take communicators and
/// threads, the way by host memory takes a copy of the gradients there.
bool clearly_wins(const TriedPath& path, const TriedPath& plainer);

/// The one to take of those that were tried, from the plainest on; the plainest where none was.
GradientPath choose_path(const std::vector<TriedPath>& tried);

/// Everything that all ranks of a cell must agree on before the first step.
struct ExchangePlan {
  TrainingMethod method = kPlainestMethod;
  int servers = 0;                            ///< ranks 0 to servers-1; 0 without
  bool colocated = false;                     ///< servers are workers too
  ServerSums server_sums = ServerSums::host;  ///< of dedicated servers
  std::vector<std::size_t> counts;  ///< elements of each gradient in the flat buffer's order
  std::vector<Piece> pieces;        ///< in the order of the backward pass
  std::size_t credit_bytes = 0;     ///< ByteScheduler: bytes in flight
  Packing packing = Packing::none;  ///< of what travels; without servers
  CodecSettings codec;              ///< of what travels; all-reduced without servers
  std::vector<std::size_t> rows;    ///< of each gradient that is a matrix, else 1; low rank
  std::uint64_t seed = 0;           ///< of codecs that draw
  GradientPath path;
  /// Servers apply what they summed and answer with weights; nullopt: they answer with sums.
  std::optional<Sgd> server_sgd;

  /// Bytes that this rank sums.
  [[nodiscard]] std::size_t shard_bytes(int server) const {
    std::size_t sum = 0;
    for (const auto& piece : pieces) sum += piece.server == server ? piece.count : 0;
    return sum * sizeof(float);
  }
  /// Ranks before it are servers alone.
  [[nodiscard]] int first_worker() const { return colocated ? 0 : servers; }
  [[nodiscard]] std::size_t elements() const {
    std::size_t sum = 0;
    for (const auto count : counts) sum += count;
    return sum;
  }
};

/// The optimizer of the servers, nullopt where workers apply the sums.
std::optional<Sgd> server_sgd(const TrainingSpec& spec);

/// Most elements that a method sends as one message.
std::size_t largest_piece(const TrainingSpec& spec);

/// The plan of a method: how gradients are grouped, cut and given to servers.
/// @param spec its servers are a number, not left to the placement
/// @param gradients sizes in bytes and ready times, in the order of the backward pass
ExchangePlan make_exchange_plan(const TrainingSpec& spec, const std::vector<Gradient>& gradients,
                                const CostTable& cost);

/// The plans among which a method is left to choose, no two alike: DeAR's groups, ByteScheduler's
/// parts and credit, and of the exact program's merge those by its idle and by its busy costs, as
/// some messages travel during computation, the last ones after it. On GPUs, where no idle link
/// shows what a message takes from the computation, that merge also as if each took 20 to 150 us
/// more, and groups of usual sizes. At least one.
std::vector<ExchangePlan> possible_plans(const TrainingSpec& spec, const StepProfile& profile,
                                         const LinkCost& link, bool on_gpu);

/// What a step by the plan is expected to take, for choose_by_trial(): on GPUs anything up to 150
/// us more per message than predicted.
Expectation expected_step(const ExchangePlan& plan, const StepProfile& profile,
                          const LinkCost& link, bool on_gpu);

StepPrediction predict_step(const ExchangePlan& plan, const StepProfile& profile,
                            const LinkCost& link);

}  // namespace dynamiccl
