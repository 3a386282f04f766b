#pragma once

#include <map>
#include <string>

namespace dynamiccl {

/// Where a node stands: the names of what it hangs on, "" = not known.
struct NodePlace {
  std::string leaf_switch;
  std::string rack;
  std::string zone;
  std::string how;  ///< "declared", "Slurm's topology"
};

using NodePlaces = std::map<std::string, NodePlace>;  ///< by the node's name

}  // namespace dynamiccl
