#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"
#include "db/rows.hpp"

namespace dynamiccl {

/// One number of another program's table, with all that stands next to it there.
struct ForeignFigure {
  std::string cell_id;
  CellStatus status = CellStatus::ok;
  std::string reason;             ///< why not ok
  std::optional<double> time_us;  ///< what the table calls the time, per call; nullopt = no row
  std::int64_t n = 1;             ///< times that the table repeats it; time_us is their median
  std::int64_t calls = 1;         ///< calls that one time is the mean of
  double resolution_us = 0;       ///< half a unit of the last digit printed; 0 = not known
  std::uint64_t checked = 0;      ///< elements of one rank that the program compared
  std::uint64_t wrong = 0;
  std::string reported_json;  ///< the row's numbers as printed; empty = no row
};

/// One start of the other program.
struct ForeignLaunch {
  std::string group_id;
  int block = 0;
  std::vector<std::string> argv;  ///< empty = the table does not say
  std::string environment_json;   ///< allow-listed variables
  std::vector<ForeignFigure> figures;
};

/// Another program's tables as a run.
struct ForeignRun {
  RunInfo run;
  std::vector<GroupInfo> groups;
  std::vector<CellInfo> cells;
  std::vector<ForeignLaunch> launches;
  std::string started_utc;  ///< as near as the source says
  std::string format;       ///< "nccl-tests", "nccl-tests-json", "osu" or "imb"
  std::string source;       ///< path
  std::string sha256;
  std::string source_json;  ///< what the source says of itself, and what was assumed
  std::string barrier;      ///< what synchronised the ranks; empty = not known
  RankAggregation aggregation = RankAggregation::mean;
};

class Statements;  // db/statements.hpp

/// Stores the tables as a run of status "complete", in one transaction. For Store.
/// @returns false when this run is already here; nothing is written then
bool insert_foreign_run(Statements& db, const ForeignRun& run);

}  // namespace dynamiccl
