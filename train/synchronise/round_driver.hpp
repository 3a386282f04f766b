#pragma once

#include <memory>

#include "train/synchronise/step_driver.hpp"

namespace dynamiccl {

/// Whether a step() of the cell's driver is a round: local steps, then an average of the weights of
/// all workers, or of neighbours.
bool goes_by_rounds(const TrainingSpec& spec);

/// Workers that meet after each round of `local_steps` steps of their own. Host memory.
/// @param silence after which a neighbour is taken for lost
std::unique_ptr<StepDriver> make_round_driver(Communicator& comm, const ExchangePlan& plan,
                                              const TrainingSpec& spec, TrainingWorker& worker,
                                              Micros silence);

}  // namespace dynamiccl
