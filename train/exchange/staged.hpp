#pragma once

#include <memory>

#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "train/step/tensor_memory.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// True where a GPU's gradients go by way of host memory: to servers, in DeAR's own rings, packed,
/// encoded by the host.
/// What the library sums in one call it takes where it lies, unless that is the slower way.
bool goes_by_host(const ExchangePlan& plan);

/// A piece is copied to page-locked memory before it starts there, and its sum to `sums` when it
/// has come; both during the computation, and large pieces in chunks during each other's sums. Sums
/// come into the place of what was sent: the GPU's flat copy of the gradients and one page-locked
/// copy are all that the worker holds of them.
/// @param gradients of `memory`, as `sums`, which may be the same
std::unique_ptr<Reducer> make_staged_reducer(Communicator& comm, const ExchangePlan& plan,
                                             const float* gradients, float* sums,
                                             TensorMemory& memory);

}  // namespace dynamiccl
