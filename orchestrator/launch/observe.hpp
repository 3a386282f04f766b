#pragma once

#include <string>
#include <vector>

#include "containers/cluster/host_list.hpp"
#include "core/vocabulary/json.hpp"
#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "db/store.hpp"
#include "orchestrator/launch/launcher.hpp"
#include "profiles/detect/regime_context.hpp"
#include "profiles/machine_declarations.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// The machines of a launch.
struct RankHosts {
  std::vector<nlohmann::json> facts;  ///< probe_host() of each that could be asked
  int count = 1;
  std::vector<std::string> of_ranks;  ///< the nodes' names by rank; empty: one machine
  NodePlaces places;                  ///< where the nodes stand, as far as that is known
  MachineDeclarations declared;       ///< of [machine]
};

/// The machines of a launch with `slots` ranks on each of them in turn, and where they stand.
/// @param topology what `scontrol show topology` said, "" = nothing; what is declared goes before
void place_hosts(const std::vector<ClusterNode>& slots, const std::string& topology,
                 RankHosts& hosts);

/// One sentence where ranks that were given one node run on several machines, so that what is said
/// of their pairs would be wrong; "" = none do. A node's own name may be any.
/// @param of_ranks the nodes' names by rank
std::string why_misplaced(const std::vector<std::string>& of_ranks,
                          const std::vector<FactsRecord>& facts);

/// What a regime is given that the ranks' facts do not hold.
RegimeContext regime_context(const EnvironmentProfile& profile,
                             const MachineDeclarations& declared);

/// Compares what the ranks detected with the profile's promise and derives the regime into `end`.
/// @returns one sentence per broken promise; a launch with any did not measure what it claims
std::vector<std::string> observe(const EnvironmentProfile& profile, const RunConfig& config,
                                 const RankHosts& hosts, const std::vector<RecordFile>& records,
                                 LaunchEnd& end);

/// The allow-listed variables the commands start with, as JSON: this process's own and those added.
std::string recorded_environment(const std::vector<Command>& commands);

}  // namespace dynamiccl
