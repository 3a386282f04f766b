#pragma once

#include <string>
#include <vector>

#include "orchestrator/experiment.hpp"
#include "orchestrator/toml_reader.hpp"
#include "orchestrator/tune/tune_options.hpp"

namespace dynamiccl {

/// Reads [tune]; mistakes are noted in `root`'s.
TuneOptions read_tune(TableReader& root, const std::vector<std::string>& environments);

/// [tune] of an experiment that was read.
/// @throws Error(input) when it names an environment that the experiment's axes do not have
TuneOptions tune_options_of(const Experiment& experiment);

}  // namespace dynamiccl
