#pragma once

#include "train/exchange/outliving.hpp"
#include "train/exchange/step_server.hpp"
#include "train/plan/exchange_plan.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// A dedicated server that sums on its GPU what the library's sends bring there, in rank order, so
/// that sums are the same bits in every run, and sends the sums back, or the weights that it
/// updates with them. Holds a slot per worker for one piece; an answer, or its shard of the weights
/// and their momentum where it is the optimizer.
/// @throws Error(environment) in builds without CUDA
Outliving<StepServer> make_gpu_server(Communicator& comm, const ExchangePlan& plan);

}  // namespace dynamiccl
