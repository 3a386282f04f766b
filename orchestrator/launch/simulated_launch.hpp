#pragma once

#include <string>
#include <vector>

#include "orchestrator/launch/launcher.hpp"
#include "orchestrator/launch/smpi.hpp"
#include "orchestrator/plan/planned_group.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// Launches of environments that SimGrid simulates: a script of smpirun stands for the ranks, and
/// what it printed becomes their records.

/// Notes in `can` what of a simulated environment cannot be, and why.
void can_simulate(const EnvironmentProfile& profile, Capabilities& can);

/// A simulation repeats bit for bit, and computes nothing that could be checked: one call for the
/// warm-up and one that counts, whatever the protocol says.
void only_simulated_samples(RunConfig& config);

/// What a search may set of a call there: cells take the names as their algorithm. Next to it is
/// the default, the library's own rules.
std::vector<SmpiAlgorithm> simulated_settings(Backend backend, Collective collective);

/// Writes what SMPI needs into the launch's folder. @param config its cells are all possible ones
std::vector<Command> simulated_commands(const RunConfig& config, const EnvironmentProfile& profile);

/// After which the script of so many cells is ended: each has SMPI's own limit.
Micros simulated_timeout(std::size_t cells);

/// Records of every rank from what the script printed, next to it.
void write_simulated_records(const RunConfig& config);

}  // namespace dynamiccl
