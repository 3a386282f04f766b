#pragma once

#include <optional>
#include <string>

#include "profiles/detect/node_places.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {

/// What a user says of the machines that no probe can see; shown as declared wherever it is shown.
struct MachineDeclarations {
  std::string aggregation;  ///< in-network aggregation: "sharp", "switchml"
  std::string topology;     ///< of the network between nodes: "fat-tree"
  std::string deployment;   ///< "datacenter", "edge" or "federated"
  NodePlaces places;        ///< of the nodes, by their names
};

/// What of it processes get that name their regime themselves, {"topology": "fat-tree"}; ""
/// where there is nothing.
std::string declared_text(const MachineDeclarations& machine);

/// The keys of [machine], and of a file of declarations, but for `file`.
TableKeys machine_keys();

/// Reads a table of these keys; mistakes are noted in its file.
MachineDeclarations read_machine_keys(TableReader& table);

/// A file of declarations. @throws Error(input) with one `source:line:col: ...` line per mistake
MachineDeclarations parse_declarations(const std::string& text, const std::string& source);

}  // namespace dynamiccl
