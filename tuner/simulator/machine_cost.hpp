#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tuner/simulator/collective_cost.hpp"
#include "tuner/simulator/network_load.hpp"

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

/// One part of a collective: groups of ranks, all at once. A group's members are `stride` apart.
struct Phase {
  std::string_view algorithm;
  Collective collective = Collective::allreduce;
  int group = 1;
  int stride = 1;
  double bytes = 0;
  bool leaders = false;  ///< one group alone in each stretch of group * stride ranks
};

/// Times on one machine. What messages that travel at once share of its links is counted once for
/// each way that they take, so that further algorithms, sizes and segments cost little.
class MachineCost {
 public:
  /// The machine must outlive it.
  MachineCost(const MachineModel& machine, int ranks)
      : machine_(machine), ranks_(ranks), load_(machine) {}

  /// @param cut its segment, fan-out, depth and shards alone are read
  PredictedTime of(std::string algorithm, const std::vector<Phase>& phases,
                   const CollectiveShape& cut = {});

 private:
  /// Steps whose messages go the same ways: to the next rank, to and from the one whose number
  /// differs in one bit, only down from it.
  enum class Hops { next, swap, down };
  using Key = std::tuple<Hops, int, int, int, bool>;
  /// Ways to a group's first member, and how many members have them.
  using Ways = std::map<NetworkLoad::Latencies, int>;
  struct Link {
    double latency_us = 0;
    double us_per_byte = 0;
    LinkTier tier = LinkTier::node;
  };

  void add(const Phase& phase, const CollectiveShape& cut, PredictedTime& time);
  void add_rounds(const Phase& phase, MessagePattern pattern, const CollectiveWork& work,
                  PredictedTime& time);
  const FlowCost& flows(Hops hops, const Phase& phase, int distance);
  [[nodiscard]] Link link(const FlowCost& cost, double message) const;
  Link to_root(const Phase& phase, double message);
  void count(const Link& link, double rounds, double volume, PredictedTime& time);

  const MachineModel& machine_;
  int ranks_;
  NetworkLoad load_;
  std::map<Key, FlowCost> known_;
  std::map<std::pair<int, int>, Ways> ways_to_root_;
  std::array<double, kLinkTiers> bytes_us_{};
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

/// ln(us) that is expected of settings before any look, by the models that describe them: of the
/// first, which is a library's own choice, what the fastest of these says, as libraries choose with
/// care; of one without a model ("") more than the slowest.
std::vector<double> expected_log_us(const std::vector<PredictedTime>& times,
                                    const std::vector<std::string_view>& models);

/// The fastest algorithm in groups of ranks that all call at once, members `stride` ranks apart;
/// sendrecv: each member to the next one.
/// @param ranks of which every group * stride in a row are groups; where that is more than there
/// are, those whose members all exist
PredictedTime predict_groups(const MachineModel& machine, Collective collective, int group,
                             int stride, double bytes, int ranks);

}  // namespace dynamiccl
