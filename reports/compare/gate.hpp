#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/compare/comparison.hpp"

namespace dynamiccl {

/// What a gate says of one cell or group of cells.
struct GateFinding {
  std::string what;  ///< "slower", "failed", "no reference", "not judged", "cleared"
  std::string text;  ///< one line
};

/// A run compared with a reference: `run` and `compare` with a file. A cell has a reference where
/// one was measured in a regime that the ranks detected here, too.
struct Gate {
  Comparison comparison;
  std::vector<GateFinding> findings;
  std::vector<std::string> tripped;  ///< ids of cells that are SLOWER, or failed here alone

  /// SLOWER where a cell is slower or failed, UNCLEAR where nothing was judged, else SAME.
  [[nodiscard]] Verdict verdict() const;
  /// How many times slower half of the cells may be without that this would show: the median
  /// of their intervals' upper ends. nullopt where no cell has an interval.
  [[nodiscard]] std::optional<double> may_hide() const;
};

/// The first look. What was detected in another regime than any of the reference's is taken out of
/// both sides and reported.
/// @throws Error(input) as compare_sides, but not where no cell has a reference
Gate first_look(ComparisonSide reference, ComparisonSide now, const ComparisonOptions& options);

/// The second, after what had tripped was measured again: only what is slower in both stays so.
Gate second_look(Gate first, ComparisonSide reference, ComparisonSide again,
                 const ComparisonOptions& options);

}  // namespace dynamiccl
