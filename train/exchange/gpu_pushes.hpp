#pragma once

#include <cstddef>
#include <memory>

#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// One of the calls that all ranks of a step make together where servers sum on their GPUs: a piece
/// goes from every worker to its server while the sum of the one before comes back. A step has one
/// call more than pieces. Ranks without a part in a call send and receive nothing in it.
struct ServedCall {
  const Piece* pushed;  ///< nullptr in the last call
  const Piece* pulled;  ///< nullptr in the first
};
inline ServedCall served_call(const ExchangePlan& plan, std::size_t call) {
  return {call < plan.pieces.size() ? &plan.pieces[call] : nullptr,
          call > 0 ? &plan.pieces[call - 1] : nullptr};
}

/// A worker's pushes to servers that do not sum in host memory, by the library's calls on GPU
/// memory, in the plan's order on every rank.
/// @param gradients of the GPU's memory, replaced by the sums, or by the servers' weights
std::unique_ptr<Reducer> make_gpu_pushes(Communicator& comm, const ExchangePlan& plan,
                                         float* gradients);

}  // namespace dynamiccl
