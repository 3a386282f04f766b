#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/tune/tune_plan.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// Launch settings that a job has together, as group knobs: "mca.btl_vader_eager_limit" -> "32768".
using LaunchSettings = std::map<std::string, std::string>;

/// Places where a table's files are loaded as a job loads them: every group of an experiment's plan
/// whose library takes a file (Open MPI, MPICH), with its collectives over all sizes. A task is one
/// collective and size; its arms are the library without any file, what is exported, and two of
/// every set of launch settings: the library's own algorithm under it, and the table's.
struct CheckPlan {
  static constexpr std::size_t kPlainArm = 0;
  static constexpr std::size_t kExportedArm = 1;
  static constexpr std::size_t library_arm(std::size_t set) { return 2 + 2 * set; }
  static constexpr std::size_t algorithm_arm(std::size_t set) { return 3 + 2 * set; }

  TunePlan plan;
  struct Place {
    std::size_t plain = 0;   ///< group of the plan without a file
    std::size_t loaded = 0;  ///< the same with one
    std::vector<std::size_t> tasks;
    /// Do its ranks reach each other through shared memory? nullopt: not known.
    std::optional<bool> shared_memory;
    std::vector<LaunchSettings> sets = {};  ///< by fewest settings; the first may be empty
    /// What the table asks for at a task, by place in `tasks`; nullopt where nothing can be loaded.
    std::vector<std::optional<ActionSettings>> algorithms = {};
  };
  std::vector<Place> places;
};

/// Twenty sizes from 4 B to 64 MiB besides the table's own; searched or not.
/// @param experiment whose plan `tuned` is
/// @throws Error(input) when no group takes a file
CheckPlan make_check_plan(const Experiment& experiment, const TunePlan& tuned,
                          const ConfigurationTable& table);

/// Rows of a table that a place's jobs would load.
std::vector<TableEntry> rows_for(const std::vector<TableEntry>& all, const std::string& regime,
                                 const PlannedGroup& group);

/// Gives a place its sets of launch settings and its algorithms, and its tasks their arms.
/// @returns settings of rows that cannot act there, "mca.btl_tcp_sndbuf"
std::vector<std::string> add_sets(CheckPlan& check, CheckPlan::Place& place,
                                  const std::vector<TableEntry>& rows);

/// What rows ask for, as sets that one job can have: none where a row names an algorithm, each
/// setting alone, all together (of several values of one the value that gains most), and what rows
/// have together, by what they gain; at most `most`, fewest settings first.
std::vector<LaunchSettings> launch_sets(const std::vector<TableEntry>& rows, std::size_t most = 6);

/// What an exported setting is at a size, by the nearest of these rows; a tie goes to the smaller.
const TableEntry* nearest_row(const std::vector<TableEntry>& rows, Collective collective,
                              Bytes size);

}  // namespace dynamiccl
