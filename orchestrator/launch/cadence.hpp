#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/wire/record.hpp"
#include "db/store.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// How many calls a sample of each operation counts: a run's first good launch settles it by
/// Protocol::batch_target, and all later ones do the same, in whatever environment and with
/// whatever settings. A mean of three calls is not compared with single calls.
class CadenceBook {
 public:
  void note(const PlannedGroup& group, const std::vector<RecordFile>& records);
  /// What a run that is resumed has settled; cells that are not in the plan count for nothing.
  void note(const Plan& plan, const std::vector<SettledBatch>& stored);
  /// Sets WorkCell::batch where it is settled.
  void apply(const PlannedGroup& group, std::vector<WorkCell>& cells) const;

 private:
  void note(const PlannedGroup& group, const std::string& cell_id, int batch);
  std::map<std::string, int> batches_;
};

}  // namespace dynamiccl
