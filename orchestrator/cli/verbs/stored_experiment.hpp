#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"

namespace dynamiccl {

/// What a run's overrides hold that nobody typed: which verb stored it, and why.
bool is_mark(const std::string& override_text);

/// An experiment's file as it was, and what it was run with.
struct StoredExperiment {
  std::string text;
  std::vector<std::string> overrides;  ///< as --set takes them, without marks
  std::string only;                    ///< as --only takes it; "" = nothing was left out
};

/// @param run a run's full id
/// @param what asks for it: begins what is refused
/// @throws Error(input) for a run that is none of an experiment's file: imported, one launch again,
/// a search
StoredExperiment stored_experiment(const Reader& reader, const std::string& run,
                                   const std::string& what);

}  // namespace dynamiccl
