#pragma once

#include "db/table.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/tune/check_plan.hpp"

namespace dynamiccl {

/// How much `tune check` measures.
struct CheckOptions {
  int launches = 6;    ///< of everything that is compared, before each look
  double seconds = 0;  ///< that a place may take; fewer launches where it would not do; 0: any
};

/// What `tune check` prints.
struct CheckAnswer {
  Table table;                       ///< a row per size
  std::vector<std::string> summary;  ///< what a job gains by place, and what was dropped why
};

/// Finds what a job of each place can load, and keeps it in the table as its checks, which are what
/// export_table() writes. A job has one value of each launch setting, so sets of those that the
/// table's rows ask for are compared first, each with the library's own and with the table's
/// algorithms, and the set that gains most over all sizes is taken of those under which no size is
/// surely slower (sizes weigh the same; among sets that noise does not tell apart that with the
/// fewest settings). Algorithms are kept where they are surely faster under that set. Then it is
/// measured exactly as it is exported, sizes that seem slower more often than the others; what
/// loses is cut, what was changed is measured again, and where a launch setting loses the next set
/// is tried. A measure() that answers nothing (a signal) ends the check: what is known by then is
/// kept, unless a size leans to the slower side.
/// @param check its groups change between the looks; `measure` answers for its plan
/// @param folder where rules files lie that every rank can read
CheckAnswer check_export(CheckPlan& check, const Evaluate& measure, const std::string& folder,
                         ConfigurationTable& table, const CheckOptions& options,
                         const Console& console);

}  // namespace dynamiccl
