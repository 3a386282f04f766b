#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/machine_model.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What one algorithm takes on a machine, by the models of collective_cost.
struct PredictedTime {
  std::string algorithm;
  double us = 0;
  double start_up_us = 0;    ///< of it
  double bytes_us = 0;       ///< of it
  double sum_us = 0;         ///< of it
  double segment = 0;        ///< of those tried the fastest; 0 = none
  std::string_view limit{};  ///< which link most of bytes_us is for: "node", "network", "wide"
};

/// Every algorithm that has a model, flat or composed of groups, the fastest first. Composed ones:
///   two_level_X       reduce to one rank of each node, X among those, broadcast in the node
///   split_X           reduce-scatter in the node, X among the ranks of each part, allgather
///   torus_2d          the same over a grid of ranks, both by rings
///   blueconnect       the same over every level of the network, each by rings
///   parameter_server  all to one rank, which sums, and back
/// @param ranks at most the machine's; they fill its nodes in order
std::vector<PredictedTime> predict_collective(const MachineModel& machine, Collective collective,
                                              int ranks, double bytes);

/// The fastest algorithm in groups of ranks that all call at once, members `stride` ranks apart;
/// sendrecv: each member to the next one.
/// @param ranks of which every group * stride in a row are groups; where that is more than there
/// are, those whose members all exist
PredictedTime predict_groups(const MachineModel& machine, Collective collective, int group,
                             int stride, double bytes, int ranks);

}  // namespace dynamiccl
