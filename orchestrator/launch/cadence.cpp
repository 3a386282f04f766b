#include "orchestrator/launch/cadence.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace dynamiccl {
namespace {

std::string key_of(const PlannedGroup& group, const WorkCell& work) {
  // Calls of cold buffers are never batched, and settle nothing for the others.
  return fmt::format("{}|{}|{}|{}|{}|{}{}", name_of(group.backend), name_of(group.architecture),
                     group.ranks, name_of(work.collective), work.size.count(),
                     name_of(work.datatype), work.knobs.contains("cold_cache") ? "|cold" : "");
}

}  // namespace

void CadenceBook::note(const PlannedGroup& group, const std::string& cell_id, int batch) {
  const auto cell = std::find_if(group.cells.begin(), group.cells.end(),
                                 [&](const PlannedCell& c) { return c.work.id == cell_id; });
  if (cell != group.cells.end()) batches_.emplace(key_of(group, cell->work), batch);
}

void CadenceBook::note(const PlannedGroup& group, const std::vector<RecordFile>& records) {
  if (records.empty()) return;
  for (const Record& record : records.front().records) {
    const auto* cell = std::get_if<CellRecord>(&record);
    if (cell != nullptr && cell->status == CellStatus::ok && !cell->training)
      note(group, cell->cell_id, cell->batch);
  }
}

void CadenceBook::note(const Plan& plan, const std::vector<SettledBatch>& stored) {
  for (const SettledBatch& batch : stored) {
    const auto group = std::find_if(plan.groups.begin(), plan.groups.end(),
                                    [&](const auto& g) { return g.id == batch.group_id; });
    if (group != plan.groups.end() && !group->trains()) note(*group, batch.cell_id, batch.calls);
  }
}

void CadenceBook::apply(const PlannedGroup& group, std::vector<WorkCell>& cells) const {
  if (group.trains()) return;
  for (WorkCell& cell : cells) {
    const auto found = batches_.find(key_of(group, cell));
    if (found != batches_.end()) cell.batch = found->second;
  }
}

}  // namespace dynamiccl
