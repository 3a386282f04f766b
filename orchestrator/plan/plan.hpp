#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/wire/run_config.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/plan/planned_group.hpp"

namespace dynamiccl {

/// Expands an experiment. Pure: no clock, no files. Same input, same ids, same order.
/// @param only keeps the cells it matches; nullptr keeps all
Plan make_plan(const Experiment& experiment, const Capabilities& capabilities,
               const Expression* only);

/// A cell as expressions see it, which holds only while all three live.
/// @param knobs of group and cell, as an experiment writes them
CellView view_of(const PlannedGroup& group, const WorkCell& cell,
                 const std::map<std::string, std::string>& knobs);

/// "NAME=VALUE;" of each, for ids.
std::string knobs_key(const std::map<std::string, std::string>& knobs);

/// Order of `count` groups in a block: a permutation that depends on seed and block alone.
std::vector<std::size_t> block_order(std::size_t count, std::uint64_t seed, int block);

/// The launch's own seed for data and cell order: fresh per group, block and attempt.
std::uint64_t launch_seed(std::uint64_t seed, const std::string& group_id, int block, int attempt);

/// The possible cells of a group in the launch's random order.
std::vector<WorkCell> launch_cells(const PlannedGroup& group, std::uint64_t launch_seed);

}  // namespace dynamiccl
