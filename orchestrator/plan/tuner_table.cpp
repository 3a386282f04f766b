#include "orchestrator/plan/tuner_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/digest.hpp"
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

std::string table_digest(const TrainingSpec& spec) {
  const std::string path = tuner_table(spec);
  if (path.empty()) return "";
  try {
    ConfigurationTable table = read_table(path);
    // What it sets, not where and how well it was measured.
    table.epoch = 0;
    table.provenance = nlohmann::json::object();
    table.checks.clear();
    for (TableEntry& entry : table.entries) {
      entry.evidence = {};
      entry.flags.clear();
    }
    return stable_id(to_json(table));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace dynamiccl
