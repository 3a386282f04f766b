#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/json.hpp"
#include "db/store.hpp"
#include "orchestrator/experiment/experiment.hpp"

namespace dynamiccl {

/// How far a group is.
struct GroupProgress {
  /// Every cell's interval was narrow enough at its last two looks, or with the most launches.
  bool reached = false;
  int launches = 0;  ///< of the cell that has least
  std::size_t cells = 0;
  std::size_t wide_cells = 0;    ///< which are not narrow enough yet
  std::optional<double> widest;  ///< relative half-width; nullopt when no cell has an interval
  std::string widest_cell;       ///< id
};

/// @param cells all cells of one group that have a result
GroupProgress progress_of(const std::vector<CellMedians>& cells, const StoppingRule& rule);

/// The document of plan_group.stopping_json.
/// @param stopped_by "target", "max_launches", "time_budget" or "interrupted"
nlohmann::json stopping_json(const GroupProgress& progress, const RunProtocol& protocol,
                             const std::string& stopped_by);

}  // namespace dynamiccl
