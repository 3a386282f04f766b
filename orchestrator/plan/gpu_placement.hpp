#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orchestrator/plan/planned_group.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// True when the parameter server of an NCCL group takes part from host memory: launch knob
/// env.DYNAMICCL_SERVER_GPU = "none".
bool server_without_gpu(const PlannedGroup& group);

/// How many GPUs the ranks of a group take turns on (rank r on GPU r modulo this): launch knob
/// env.DYNAMICCL_SHARED_GPUS. To NCCL, which refuses two ranks of one host on one GPU, each rank
/// is then a host of its own. Nothing: every rank has a GPU of its own; 0: the knob is no number.
std::optional<int> shared_gpus(const PlannedGroup& group);

/// Why a machine with so many GPUs cannot run the group; "" when it can.
std::string why_too_few_gpus(const PlannedGroup& group, int gpus);

/// The GPU each rank uses, by its number among those the rank sees; -1: a server without one.
/// Empty where ranks need none.
std::vector<int> gpus_of_ranks(const PlannedGroup& group, const EnvironmentProfile& profile,
                               int server_rank);

}  // namespace dynamiccl
