#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/compare/comparison.hpp"

namespace dynamiccl {

/// What a gate says of one cell or group of cells.
struct GateFinding {
  std::string what;       ///< "slower", "failed", "unsupported" (cannot run here any more),
                          ///< "no reference", "not judged", "cleared",
                          ///< "unconfirmed": slower or failed once, and no later look could tell
  std::string text;       ///< one line
  std::string cell = {};  ///< its id; "" = a group of cells, or one not to be looked at again
};

/// A gate in which each cell could be this many times slower without showing has judged nothing.
constexpr double kBlind = 1.25;

/// A run compared with a reference: `run` and `compare` with a file. A cell has a reference where
/// one was measured in a regime that the ranks detected here, too.
struct Gate {
  Comparison comparison;
  std::vector<GateFinding> findings;
  /// Ids of cells to look at again: SLOWER, failed here alone, or timed otherwise, as each run
  /// sizes its batches for itself.
  std::vector<std::string> tripped;

  /// SLOWER where a cell is slower, failed or cannot run any more; UNCLEAR where one is
  /// unconfirmed; SAME where of at least one it is sure that it is not slower, or not by kBlind;
  /// else UNCLEAR.
  [[nodiscard]] Verdict verdict() const;
  /// How many times slower half of the cells may be without that this would show: the median
  /// of their intervals' upper ends. nullopt where no cell has an interval.
  [[nodiscard]] std::optional<double> may_hide() const;
  /// The verdict for people: "passed; ...", with what may_hide() where it is more than a tenth.
  [[nodiscard]] std::string outcome() const;
};

/// The first look. What was detected in another regime than any of the reference's is taken out of
/// both sides and reported.
/// @throws Error(input) as compare_sides, but not where no cell has a reference
Gate first_look(ComparisonSide reference, ComparisonSide now, const ComparisonOptions& options);

/// The next, after what had tripped was measured again: only what is slower in both stays so. What
/// it did not see, or too badly to tell, is unconfirmed, and tripped: who differs so much now may
/// have done so in the first look.
Gate next_look(Gate gate, ComparisonSide reference, ComparisonSide again,
               const ComparisonOptions& options);

/// After the last look: what was slower or failed in one alone is unconfirmed.
Gate closed(Gate gate);

}  // namespace dynamiccl
