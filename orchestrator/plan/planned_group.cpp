#include "orchestrator/plan/planned_group.hpp"

#include <algorithm>

namespace dynamiccl {

bool PlannedGroup::trains() const {
  return std::any_of(cells.begin(), cells.end(), [](const PlannedCell& cell) {
    return cell.impossible.empty() && cell.work.collective == Collective::training;
  });
}

std::size_t PlannedGroup::possible_cells() const {
  return static_cast<std::size_t>(std::count_if(
      cells.begin(), cells.end(), [](const PlannedCell& cell) { return cell.impossible.empty(); }));
}

std::size_t PlannedGroup::rounded_cells() const {
  return static_cast<std::size_t>(std::count_if(
      cells.begin(), cells.end(),
      [](const PlannedCell& cell) { return cell.rounded && cell.impossible.empty(); }));
}

std::size_t Plan::cell_count() const {
  std::size_t count = 0;
  for (const auto& group : groups) count += group.cells.size();
  return count;
}

std::size_t Plan::possible_cells() const {
  std::size_t count = 0;
  for (const auto& group : groups) count += group.possible_cells();
  return count;
}

bool Plan::trains() const {
  return std::any_of(groups.begin(), groups.end(),
                     [](const PlannedGroup& group) { return group.trains(); });
}

}  // namespace dynamiccl
