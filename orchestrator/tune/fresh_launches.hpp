#pragma once

#include <map>
#include <vector>

#include "orchestrator/run/console.hpp"
#include "orchestrator/tune/evaluator.hpp"
#include "tuner/search/confirmation.hpp"

namespace dynamiccl {

/// Confirms choices against their defaults, each round of both in an order of its own. Ends early
/// when a signal interrupts; only complete rounds count.
/// @param choices of the evaluator's tasks
std::map<Ask, std::vector<PairedTime>> confirm_choices(LaunchEvaluator& evaluator,
                                                       const std::vector<Ask>& choices,
                                                       const ConfirmationRule& rule);

/// Measures what replayed searches chose: to confirm it, and, in rounds between, to score it next
/// to the oracle's choices and the default twice.
/// @param place  the tasks' indices in the evaluator's plan
/// @param oracles, scores  of these tasks
/// @returns by task; complete rounds only, fewer than the rule's when a signal interrupts
std::vector<FreshTimes> measure_choices(LaunchEvaluator& evaluator,
                                        const std::vector<std::size_t>& place,
                                        const std::vector<Oracle>& oracles,
                                        const std::vector<ReplayScore>& scores,
                                        const ConfirmationRule& rule, const Console& console);

}  // namespace dynamiccl
