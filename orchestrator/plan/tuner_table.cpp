#include "orchestrator/plan/tuner_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/error.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

std::string table_misfit(const TrainingSpec& spec, Backend backend) {
  const std::string path = tuner_table(spec);
  if (path.empty()) return "";
  try {
    const ConfigurationTable table = read_table(path);
    const bool any =
        std::any_of(table.entries.begin(), table.entries.end(), [backend](const TableEntry& entry) {
          return entry.key.task.backend == backend &&
                 entry.key.task.collective == Collective::allreduce;
        });
    if (any) return "";
    return fmt::format("tuner = \"{}\": the table has no row of {}'s all-reduce; tune that first",
                       path, name_of(backend));
  } catch (const Error& error) {
    return fmt::format("tuner = \"{}\": {}; say off, online or the path of a table that tune wrote",
                       path, error.what());
  }
}

}  // namespace dynamiccl
