#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/vocabulary/machine_model.hpp"

namespace dynamiccl {

/// What messages that travel at once share of a machine's links. Each travels the shortest way;
/// where a fat tree has several, they are spread evenly.
struct FlowCost {
  std::array<double, kLinkTiers> latencies{};  ///< of the longest way, in latencies of each tier
  std::array<double, kLinkTiers> load{};       ///< messages on the busiest link of each tier
};

/// Counts messages on the links of a machine.
class NetworkLoad {
 public:
  explicit NetworkLoad(const MachineModel& machine);

  using Latencies = std::array<double, kLinkTiers>;

  /// A message of one rank to another, on its way at the same time as all since clear().
  /// @returns its own way, as FlowCost has the longest
  Latencies add(int from, int to);
  [[nodiscard]] FlowCost cost() const;
  void clear();

 private:
  /// Links of one kind.
  struct Kind {
    std::size_t begin = 0;
    std::size_t count = 0;
    LinkTier tier = LinkTier::network;
    double cables = 1;
  };
  /// Switches of a level of a tree, each with links up and down.
  struct Level {
    int nodes = 1;  ///< below one switch
    std::size_t up = 0;
    std::size_t down = 0;
    LinkTier tier = LinkTier::network;
  };
  std::size_t add_kind(std::size_t count, LinkTier tier, double cables);
  void add_level(int nodes, LinkTier tier, double cables);
  void make_tree();
  void make_dragonfly();
  void on(std::size_t kind, std::size_t link) { ++messages_[kinds_[kind].begin + link]; }
  Latencies by_tree(int from, int to);
  Latencies by_torus(int from, int to);
  Latencies by_dragonfly(int from, int to);
  Latencies by_bcube(int from, int to);

  const MachineModel& machine_;
  std::vector<Kind> kinds_;
  std::vector<Level> levels_;
  std::vector<std::uint32_t> messages_;  ///< by link
  Latencies longest_{};
  double longest_us_ = -1;
};

}  // namespace dynamiccl
