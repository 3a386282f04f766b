#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace dynamiccl {

/// Settings of training that are none any more, which stored cells and older experiments may still
/// name, and what holds in their place.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kRemovedSettings{
    {{"elastic", "it is 0.9, and no setting any more"},
     {"gossip_pull", "it is 0.5, and no setting any more"},
     {"shift_rate", "it follows from bits, and is no setting any more"}}};

}  // namespace dynamiccl
