#pragma once

#include <memory>

#include "train/exchange/call_settings.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// The reducer of the plan's method in the memory that the library, or our own rings, sum in.
/// @param gradients this worker's, replaced by the sum unless `sums` is another buffer: with
/// servers an answer is then taken in once its piece has been sent, no earlier
/// @param settings of the library's all-reduces; nullptr: its own
std::unique_ptr<Reducer> make_reducer(Communicator& comm, const ExchangePlan& plan,
                                      float* gradients, float* sums,
                                      CallSettings* settings = nullptr);

}  // namespace dynamiccl
