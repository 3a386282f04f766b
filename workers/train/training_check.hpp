#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/wire/record.hpp"
#include "workers/communicator.hpp"
#include "workers/train/step_driver.hpp"

namespace dynamiccl {

/// Some steps of the method: every worker must have the same bits then, and those of one process
/// that does every worker's part in turn; weights are at the start again afterwards. Ranks: all.
/// @param worker nullptr on servers
/// @param driver makes what exchanges the plan's gradients
/// @param record whose training is filled in; fails where bits are not the same, or weights differ
///               from the one process' by more than 1e-6, on GPUs by more than 1e-5
void check_oracle(Communicator& comm, const ExchangePlan& plan, int steps, TrainingWorker* worker,
                  const std::function<std::unique_ptr<StepDriver>()>& driver, CellRecord& record);

/// After the last step every worker must have the same bits. Ranks: all.
/// @param counts elements of each gradient
/// @param worker nullptr on servers
/// @param record whose training gets the digest of this worker's own weights; fails where they have
///               not
void compare_ranks(Communicator& comm, int servers, const std::vector<std::size_t>& counts,
                   TrainingWorker* worker, CellRecord& record);

}  // namespace dynamiccl
