#pragma once

#include <string>
#include <string_view>

#include "db/store.hpp"

namespace dynamiccl {

/// The newest unfinished run of this file with other settings, and what it was started with: what
/// is missing is most often one of these.
/// @param mark what the override of a run of tuning says of its kind (kSweepMark); "" = a measured
/// run
/// @returns "; run ID of it is unfinished, which ...", "" where there is none
std::string unfinished_otherwise(const std::string& db, const RunInfo& info, std::string_view mark);

}  // namespace dynamiccl
