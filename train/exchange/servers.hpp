#pragma once

#include "train/exchange/outliving.hpp"
#include "train/exchange/step_server.hpp"
#include "train/plan/exchange_plan.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// A dedicated server's side of a plan whose workers push gradients, or weights, all together: it
/// sums where plan.server_sums says.
Outliving<StepServer> make_gradient_server(Communicator& comm, const ExchangePlan& plan);

}  // namespace dynamiccl
