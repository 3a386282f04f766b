#include "orchestrator/launch/tuned_training.hpp"

#include <algorithm>

#include "train/spec/training.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {
namespace {

bool is_tuned_training(const WorkCell& cell) {
  return cell.collective == Collective::training && is_tuned(training_spec(cell));
}

}  // namespace

bool has_tuned_training(const PlannedGroup& group) {
  return std::any_of(group.cells.begin(), group.cells.end(),
                     [](const PlannedCell& cell) { return is_tuned_training(cell.work); });
}

void bring_tables(const std::vector<WorkCell>& cells, const std::string& folder) {
  for (const WorkCell& cell : cells) {
    if (cell.collective != Collective::training) continue;
    const TrainingSpec& spec = training_spec(cell);
    if (const std::string path = tuner_table(spec); !path.empty())
      write_table(read_table(path), folder + "/" + tuner_file(spec));
  }
}

}  // namespace dynamiccl
