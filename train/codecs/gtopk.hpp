#pragma once

#include "train/codecs/largest_codec.hpp"

namespace dynamiccl {

/// A value of a sparse frame.
struct PlacedValue {
  std::uint32_t place = 0;
  float value = 0;
};

/// gTop-k: frames of two workers become one as long, until there is one of all.
class GTopK final : public LargestCodec {
 public:
  using LargestCodec::LargestCodec;
  /// After the merge of all workers' frames, what was lost is kept.
  /// @param own this worker's frame as it was sent
  /// @param dropped by this worker's merges
  void conclude_merge(const CodedPart& part, const std::uint8_t* own, const std::uint8_t* merged,
                      std::vector<PlacedValue>& dropped);
};

/// The tree: whose frame a worker's goes into (the first one's into nobody's), and whose come into
/// its own, in this order.
int merge_parent(int worker);
std::vector<int> merge_children(int worker, int workers);
/// Of the sum of two frames the `kept` largest, of equals the first, into `lower`; the others are
/// appended to `dropped`.
void merge_largest(std::uint8_t* lower, const std::uint8_t* upper, std::size_t kept,
                   std::vector<PlacedValue>& dropped);

}  // namespace dynamiccl
