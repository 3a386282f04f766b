#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {

/// What a launch of one rank on each of two nodes came to.
struct PairTime {
  double fastest_us = 0;  ///< of its calls: what the pair can do, whoever disturbs it
  double typical_us = 0;  ///< their median: the launch's value in an interval
  std::string failure;    ///< why there is no time, "" = there is one

  [[nodiscard]] bool ok() const { return failure.empty(); }
};

/// Launches the pair; nullopt ends the search (an interrupt).
using MeasurePair = std::function<std::optional<PairTime>(std::size_t, std::size_t)>;

struct PairLaunch {
  std::size_t a = 0;
  std::size_t b = 0;
  PairTime time;
};

struct PairSearchLimits {
  double suspect = 1.25;  ///< a pair this many times as slow as the fastest one is looked into
  double band = 0.10;     ///< what is named is slower than this, with its whole interval
  int confirmations = 3;  ///< fresh launches of each side before anything is named; 3 at least
};

/// A node, or a link between two nodes that are both well.
struct PairSuspect {
  std::size_t node = 0;
  std::size_t with = 0;  ///< its partner in the confirming launches; a link's other end
  bool link = false;     ///< neither end is to blame alone
  Ratio ratio;           ///< its time over the reference pair's, from fresh launches
  /// Of fresh launches, with none next to it that ran or too few; "" = they ran, but for one at
  /// most.
  std::string failure;
  bool confirmed = false;   ///< to be drained; false: the fresh launches did not bear it out
  int launches_a_side = 0;  ///< behind the ratio
};

struct PairSearchResult {
  std::vector<PairLaunch> launches;  ///< in their order
  std::vector<PairSuspect> suspects;
  /// The pair that the others are compared with; nullopt = none ran.
  std::optional<PairLaunch> reference;
  bool stopped = false;  ///< before its end

  /// Anything confirmed.
  [[nodiscard]] bool found() const;
};

/// Finds slow or unreachable nodes among `nodes` by launches of two ranks. Each node is in one pair
/// first; the pairs that are slow are split, each half with a node of the fastest pair; what is
/// slow there too is measured anew, in turns with the fastest pair, and named when the whole
/// interval of the ratio lies beyond the band. What ran before must fail twice, and never run,
/// before it is named as down. Needs fewer than half of the nodes to be slow: else the fastest pair
/// is no measure. For N nodes with one slow one N/2 + 2 + 2 x confirmations launches.
/// @param nodes 2 at least; of two nodes neither is ever named as slow
PairSearchResult find_slow_nodes(std::size_t nodes, const MeasurePair& measure,
                                 const PairSearchLimits& limits = {});

}  // namespace dynamiccl
