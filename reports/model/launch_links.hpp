#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "db/reader.hpp"
#include "profiles/detect/link_rates.hpp"

namespace dynamiccl {

/// The links of a launch's regime and what they can carry.
struct LaunchLinks {
  std::string intra_link;
  std::string inter_link;
  std::string inter_tier;
  std::optional<LinkRate> intra;
  std::optional<LinkRate> inter;
  bool apart = false;  ///< ranks in different network namespaces or on different hosts
};

/// @param launch row key of launch
LaunchLinks links_of_launch(const Reader& reader, std::int64_t launch);

}  // namespace dynamiccl
