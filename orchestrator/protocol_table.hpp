#pragma once

#include <nlohmann/json.hpp>

#include "orchestrator/experiment.hpp"
#include "orchestrator/toml_reader.hpp"

namespace dynamiccl {

/// Reads [protocol] with [protocol.noise]; mistakes are noted in `root`.
void read_protocol(TableReader& root, RunProtocol& protocol);

/// The protocol as resolved, for run.protocol_json.
nlohmann::json to_json(const RunProtocol& protocol);

}  // namespace dynamiccl
