#pragma once

#include <memory>

#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Sums of encoded gradients (ExchangePlan::codec): the library's all-reduce of what is encoded
/// where that is linear, else every worker's frames at every worker, decoded and added in rank
/// order, so that all have the same bits. Host memory.
std::unique_ptr<Reducer> make_coded_reducer(Communicator& comm, const ExchangePlan& plan,
                                            float* gradients);

}  // namespace dynamiccl
