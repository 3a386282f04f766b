#pragma once

#include <cstdint>

#include "plugin/agreement/call_table.hpp"
#include "plugin/agreement/member.hpp"

namespace dynamiccl::testing {

/// A table that says nothing but so many channels for every call.
inline CallTable with_channels(std::uint8_t channels) {
  CallTable table;
  for (auto& row : table.cells) row.fill({CallCell::kAny, CallCell::kAny, channels, 0});
  return table;
}

/// What a rank is told for one of them.
inline unsigned call(Member& member) { return member.decide(4, 20).channels; }

}  // namespace dynamiccl::testing
