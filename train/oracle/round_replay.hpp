#pragma once

#include <string>
#include <vector>

#include "train/step/worker_step.hpp"
#include "train/synchronise/replay.hpp"

namespace dynamiccl {

/// What one process gets that does every worker's rounds in turn, each with weights and momentum of
/// its own. `worker` is at the start; whose weights are its learner's afterwards is open.
/// @param rounds of each leg, where workers go over to another way of waiting
/// @param log of the rounds that are replayed, which has the length of each; may be empty
/// @param after asked after each round but the last
/// @param broken gets what of the log the losses do not bear out; untouched where all is well
ReplayedRounds replay_rounds(const ExchangePlan& plan, const TrainingSpec& spec,
                             TrainingWorker& worker, int rounds, const RoundLog& log,
                             const StatesAfter& after, std::string& broken);

}  // namespace dynamiccl
