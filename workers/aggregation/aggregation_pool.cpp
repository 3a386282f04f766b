#include "workers/aggregation/aggregation_pool.hpp"

#include <algorithm>

namespace dynamiccl {
namespace {

void combine(AggregationPacket& sum, const AggregationPacket& more) {
  const std::size_t count = sum.header.elements;
  if (sum.header.kind == AggregationKind::greatest) {
    for (std::size_t i = 0; i < count; ++i) sum.values[i] = std::max(sum.values[i], more.values[i]);
    return;
  }
  // Overflow of signed numbers is not defined, that of unsigned ones wraps around as a switch does.
  for (std::size_t i = 0; i < count; ++i)
    sum.values[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sum.values[i]) +
                                              static_cast<std::uint32_t>(more.values[i]));
}

}  // namespace

AggregationPool::AggregationPool(int ranks) : ranks_(ranks), slots_(2 * kAggregationSlots) {
  for (Slot& slot : slots_) slot.seen.resize(static_cast<std::size_t>(ranks), false);
}

AggregationPool::Then AggregationPool::take(const AggregationPacket& packet,
                                            const AggregationPacket*& answer) {
  const AggregationHeader& header = packet.header;
  if (header.rank >= ranks_ || header.elements > kChunkElements) return Then::nothing;
  Slot& slot = slots_[header.sequence % slots_.size()];
  const bool used = slot.count > 0;
  // On its way for so long that all ranks are past it.
  if (used && header.sequence < slot.sum.header.sequence) return Then::nothing;
  if (!used || header.sequence > slot.sum.header.sequence) {
    slot.sum.header = header;
    std::copy_n(packet.values.begin(), header.elements, slot.sum.values.begin());
    std::fill(slot.seen.begin(), slot.seen.end(), false);
    slot.count = 0;
  } else if (header.elements != slot.sum.header.elements || header.kind != slot.sum.header.kind) {
    return Then::nothing;
  } else if (slot.seen[header.rank]) {
    answer = &slot.sum;
    return slot.count == ranks_ ? Then::tell_one : Then::tell_waits;
  } else {
    combine(slot.sum, packet);
  }
  slot.seen[header.rank] = true;
  if (++slot.count < ranks_) return Then::nothing;
  answer = &slot.sum;
  return Then::tell_all;
}

}  // namespace dynamiccl
