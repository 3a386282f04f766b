#pragma once

#include <memory>

#include "train/codecs/message_codec.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// A worker that is a server too. It adds every worker's gradients of its shard in rank order, its
/// own from where they lie, so that sums are the same bits in every run. Holds one slot per other
/// worker and, where it is the optimizer, the weights: at most N times its shard besides the
/// worker's buffers.
/// @param gradients this worker's, in host memory
/// @param sums the answers; may be `gradients`
/// @param push_pull of the pieces that other ranks sum
std::unique_ptr<Reducer> make_colocated_reducer(Messages& comm, const ExchangePlan& plan,
                                                float* gradients, float* sums,
                                                std::unique_ptr<Reducer> push_pull,
                                                MessageCodec* messages = nullptr);

}  // namespace dynamiccl
