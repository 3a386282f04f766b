#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "db/reader.hpp"

namespace dynamiccl {

/// The machines that a group's ranks were on, in the launches that ended well.
struct Machines {
  std::set<std::int64_t> nodes;  ///< how many; several where launches differ
  std::set<std::string> names;   ///< of nodes as the user called them, else the machine's own
};

/// "2 nodes: node1, node2"; "one machine: lab7".
std::string machines_text(const Machines& machines);

/// By group_key. Nothing of foreign tables, which do not tell.
std::map<std::string, Machines> machines_of_run(const Reader& reader, const std::string& run_uuid);

}  // namespace dynamiccl
