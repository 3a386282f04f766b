#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/record.hpp"

namespace dynamiccl {

/// Ranks of one host crowded on fewer cores than there are ranks while other cores are free: two
/// containers whose launchers each bound "their" rank 0 to core 0 run at half speed. One message
/// per host; empty where the affinity of a rank is not known.
/// @param host names the cores ("cpu"/"core_cpus"); a rank's own facts serve on other hosts
std::vector<std::string> binding_defects(const nlohmann::json& host,
                                         const std::vector<FactsRecord>& facts);

}  // namespace dynamiccl
