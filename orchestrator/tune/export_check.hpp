#pragma once

#include "db/table.hpp"
#include "orchestrator/tune/evaluator.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// Places where a table's files are loaded as a job loads them: every group of an experiment's plan
/// whose library takes a file (Open MPI, MPICH), with its collectives over all sizes. A task is one
/// collective and size, its arm 0 the library without any file, arm 1 with it.
struct CheckPlan {
  TunePlan plan;
  struct Place {
    std::size_t plain = 0;   ///< group of the plan without a file
    std::size_t loaded = 0;  ///< the same with one
    std::vector<std::size_t> tasks;
  };
  std::vector<Place> places;
};

/// Twenty sizes from 4 B to 64 MiB beside the table's own; searched or not.
/// @throws Error(input) when no group takes a file
CheckPlan make_check_plan(const TunePlan& tuned, const ConfigurationTable& table);

/// Loads what the table would be exported as, stretched to the nearest size, and measures it
/// against the default; then what is left of it once more, exactly as it would be exported. The
/// table gets the second answer as its checks, by which export_table() takes back what lost. Places
/// whose regime the table does not know, or of which it keeps nothing, are left out, and that is
/// said.
/// @param check its loaded groups are changed between the looks
/// @returns one row per size that was measured
Table check_export(CheckPlan& check, LaunchEvaluator& evaluator, ConfigurationTable& table,
                   int launches, Console& console);

/// What an exported setting is at a size, by the nearest of these rows; a tie goes to the smaller.
const TableEntry* nearest_row(const std::vector<TableEntry>& rows, Collective collective,
                              Bytes size);

}  // namespace dynamiccl
