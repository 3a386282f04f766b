#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// Why ranks on a node cannot use a network interface, "" = they can, or the facts do not say.
/// @param facts dynamiccl-probe there; never throws for damaged ones
std::string why_no_interface(const nlohmann::json& facts, const std::string& interface);

/// "eth0 10GbE, mtu 9000" of each link of a node that is up and leads out of it; of a node that has
/// none, as a container, those of its virtual ones that have an address: "eth0 virtual, mtu 1500".
std::vector<std::string> links_of_node(const nlohmann::json& facts);

}  // namespace dynamiccl
