#pragma once

#include <string>
#include <vector>

#include "profiles/detect/node_places.hpp"

namespace dynamiccl {

/// Names of a list as Slurm abbreviates it, "node[1-3,07],login": a range keeps its zeros.
/// @throws Error(environment) for what is no such list or names more than 65,536
std::vector<std::string> expand_names(const std::string& list);

/// Where nodes stand by `scontrol --oneliner show topology` (topology/tree): a switch of level 0 is
/// the leaf switch, one of level 1 counts as the rack and one of level 2 as the zone. Nodes that no
/// line names have no place; lines that cannot be read say nothing.
NodePlaces places_of_topology(const std::string& text);

}  // namespace dynamiccl
