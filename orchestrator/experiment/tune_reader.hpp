#pragma once

#include <string>
#include <vector>

#include "orchestrator/experiment/toml_reader.hpp"
#include "orchestrator/experiment/tune_options.hpp"

namespace dynamiccl {

/// Reads [tune]; mistakes are noted in `root`'s.
TuneOptions read_tune(TableReader& root, const std::vector<std::string>& environments);

}  // namespace dynamiccl
