#pragma once

#include <span>
#include <vector>

#include "workers/collectives/call.hpp"

namespace dynamiccl {

/// The node of each rank, numbered as they first appear: ranks of one network namespace of one
/// kernel, between which no link lies. Ranks: all.
std::vector<int> nodes_of_ranks(Messages& comm);

/// All-reduce in two levels: each node sums its ranks' parts by messages inside, one part per
/// owner, as many owners as the smallest node has ranks; the owners of a part, one on each node,
/// sum it around a ring; each owner gives the sum to its node. Over each node's link go
/// 2 (nodes - 1) / nodes of the message, the least there is, however ranks are numbered. With a
/// rank on each node it is our ring. Cho et al., BlueConnect, MLSys 2019, for nodes of any size.
void run_two_level_allreduce(const Call& call, PhaseTimes& times);

std::size_t two_level_scratch(const Layout& layout, const Place& place, DataType type,
                              const Pipelining& pipelining);

}  // namespace dynamiccl
