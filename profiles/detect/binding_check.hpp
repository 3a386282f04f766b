#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/wire/record.hpp"

namespace dynamiccl {

/// Ranks of one host crowded on fewer cores than there are ranks while other cores are free: two
/// containers whose launchers each bound "their" rank 0 to core 0 run at half speed. One message
/// per host; empty where the affinity of a rank is not known.
/// @param host names the cores ("cpu"/"core_cpus"); a rank's own facts serve on other hosts
std::vector<std::string> binding_defects(const nlohmann::json& host,
                                         const std::vector<FactsRecord>& facts);

/// Where the ranks of one launch were let run, in words that two launches can be compared by.
struct CorePlacement {
  /// "ranks 0-1 on CPUs 0-3, rank 2 on CPU 4; 3 of 3 ranks can have a core of their own"
  std::string cpus;
  /// The same without the CPUs' numbers, which mean nothing on another machine: "ranks 0-1 on all
  /// CPUs, rank 2 on 1 CPU of 1 core; 3 of 3 ranks can have a core of their own"
  std::string shape;
  std::size_t ranks = 0;
  std::size_t own_cores = 0;  ///< how many of them can have a core of their own at once
  /// Which CPUs make up the cores of each host: where it differs, so do the numbers' meanings.
  std::string layout;
};

/// Hardware threads of one core count as one core.
/// @returns nullopt where a rank's affinity or its machine's cores are not known
std::optional<CorePlacement> core_placement(const std::vector<FactsRecord>& facts);

}  // namespace dynamiccl
