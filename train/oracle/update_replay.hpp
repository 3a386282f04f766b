#pragma once

#include "core/wire/record.hpp"
#include "train/plan/exchange_plan.hpp"
#include "train/spec/training.hpp"
#include "train/step/worker_step.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Some rounds of the method against its oracle: the log must keep the synchronisation's rules, and
/// one process that computes and applies in its order must get the server's weights. Ranks: all.
void check_updates(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                   TrainingWorker* worker, Micros silence, CellRecord& record);

}  // namespace dynamiccl
