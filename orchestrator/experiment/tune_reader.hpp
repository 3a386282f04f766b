#pragma once

#include <string>
#include <vector>

#include "orchestrator/experiment/tune_options.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {

/// Reads [tune]; mistakes are noted in `root`'s.
TuneOptions read_tune(TableReader& root, const std::vector<std::string>& environments);

}  // namespace dynamiccl
