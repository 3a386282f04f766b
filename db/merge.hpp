#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dynamiccl {

class Statements;  // db/statements.hpp

/// What came of merging a database into another.
struct MergeSummary {
  std::vector<std::string> runs;   ///< ids of the runs that came
  std::vector<std::string> grown;  ///< of them: were here with fewer launches, which came too
  int already_there = 0;           ///< runs that were here before
  int diverged = 0;       ///< left as they are: each database has launches that the other one lacks
  int running = 0;        ///< left as they are here, if they are: still measured over there
  std::int64_t rows = 0;  ///< rows written, all tables
};

/// Copies the runs of another database into this one as Store::merge() says. For Store.
MergeSummary merge_database(Statements& db, const std::string& other_path);

}  // namespace dynamiccl
