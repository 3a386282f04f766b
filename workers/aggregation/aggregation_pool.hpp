#pragma once

#include <vector>

#include "workers/aggregation/aggregation_packet.hpp"

namespace dynamiccl {

/// The memory of a switch that sums, as SwitchML has it (Sapio et al., NSDI 2021, algorithm 4): a
/// fixed pool of slots in two versions. A chunk's slot and version follow from its number. A rank
/// sends a slot's next chunk when it has the sum of the one before, so that a slot of one version
/// is free once all ranks have sent to the other; until then its sum stays, for ranks that lost it.
/// A bit per rank keeps a chunk that is sent again from being summed twice.
class AggregationPool {
 public:
  enum class Then {
    nothing,    ///< waits for other ranks, or was not worth an answer
    tell_all,   ///< the sum is whole
    tell_one,   ///< it was before: this rank lost it
    tell_waits  ///< this rank asks again for what lacks other ranks
  };

  explicit AggregationPool(int ranks);
  /// @param answer the slot's sum, valid until the next call, unless nothing is to be sent
  Then take(const AggregationPacket& packet, const AggregationPacket*& answer);

 private:
  struct Slot {
    AggregationPacket sum;
    std::vector<bool> seen;
    int count = 0;  ///< ranks that have been added
  };
  int ranks_;
  std::vector<Slot> slots_;  ///< of both versions in turn
};

}  // namespace dynamiccl
