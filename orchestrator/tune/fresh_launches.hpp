#pragma once

#include <vector>

#include "orchestrator/console.hpp"
#include "orchestrator/tune/evaluator.hpp"
#include "tuner/search/confirmation.hpp"

namespace dynamiccl {

/// Measures all that replayed searches chose, the oracle's choices and the default twice, on fresh
/// launches: every round has one of each, in an order of its own.
/// @param place  the tasks' indices in the evaluator's plan
/// @param oracles, scores  of these tasks
/// @returns by task; fewer rounds when a signal interrupts, of which only complete ones are there
std::vector<FreshTimes> measure_choices(LaunchEvaluator& evaluator,
                                        const std::vector<std::size_t>& place,
                                        const std::vector<Oracle>& oracles,
                                        const std::vector<ReplayScore>& scores, int rounds,
                                        const Console& console);

}  // namespace dynamiccl
