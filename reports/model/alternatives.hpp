#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reports/model/figures.hpp"

namespace dynamiccl {

/// Cells of which one can be chosen, all else being equal.
struct Alternatives {
  std::vector<const CellFigure*> cells;   ///< the fastest first, by median
  std::vector<const CellFigure*> listed;  ///< in the order of the figures
  std::string aspect;                     ///< what of them is compared, where that is printed
  /// Whether the first is ahead beyond noise and beyond the band inside which times count as
  /// equal: judge_leads(). nullopt for fewer than two.
  std::optional<bool> lead_is_sure;
};

/// Groups in the order of their first figure. Refers to the figures, which must outlive it.
/// @param key "" leaves the figure out
std::vector<Alternatives> alternatives_by(const std::vector<CellFigure>& figures,
                                          const std::function<std::string(const CellFigure&)>& key);

/// Groups of at least two cells that differ in this axis alone.
std::vector<Alternatives> alternatives_along(const std::vector<CellFigure>& figures,
                                             const std::string& axis);

/// Judges the leads of a whole table in one pass, each run by itself.
void judge_leads(std::vector<Alternatives>& groups);

/// Values of an axis among the figures, environments and numbers in their own order.
std::vector<std::string> axis_values(const std::vector<CellFigure>& figures,
                                     const std::string& axis);

/// Whether one value of the axis can win over another: a larger message or more ranks are no
/// choice.
bool is_choice(const std::string& axis);

/// How the cells were timed: "batched", "isolated" or both.
std::string cadence_text(const Alternatives& group);

/// "yes", "no", or NULL where there is nothing to compare.
Value sure_text(const std::optional<bool>& sure);

}  // namespace dynamiccl
