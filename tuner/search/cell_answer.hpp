#pragma once

#include <optional>
#include <string>

#include "core/statistics/statistics.hpp"
#include "tuner/guards/guards.hpp"
#include "tuner/search/confirmation.hpp"

namespace dynamiccl {

/// What is known of a cell when its search has ended.
struct CellEvidence {
  std::size_t arms = 1;                     ///< settings there are, the default among them
  std::size_t tried = 0;                    ///< of these, measured at least once
  std::size_t missed = 0;                   ///< and did not reach what they are to reach
  GuardVerdict guard = GuardVerdict::pass;  ///< the search's; what failed there was not compared
  /// Choice over default on fresh launches, at the rule's confidence; nullopt = not compared.
  std::optional<Ratio> ratio;
  bool above_gloo_floor = false;  ///< the choice, there
};

/// What is said of a cell. Its parts come from one place, so that they cannot contradict each
/// other.
struct CellAnswer {
  bool kept = false;    ///< the choice is used, else the default
  std::string verdict;  ///< of the choice against the default; "" = not compared
  GuardVerdict guard = GuardVerdict::pass;
  /// kNonActionable, kUnexplored, kUndecided, kOnlyDefault, kNothingToSet or none
  std::string_view flag;
};

/// Kept is what is faster with the rule's confidence, be it by less than its band: FASTER. That
/// nothing is faster (kNonActionable) takes the verdict SAME or SLOWER for the best of them, and a
/// measurement of every setting; where every other setting missed what it is to reach,
/// nothing is left to compare (kOnlyDefault); what was not compared, or leaves it open, is
/// undecided.
CellAnswer answer_of(const CellEvidence& evidence, const ConfirmationRule& rule);

}  // namespace dynamiccl
