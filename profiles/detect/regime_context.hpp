#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"
#include "profiles/detect/node_places.hpp"

namespace dynamiccl {

/// What the facts do not hold.
struct RegimeContext {
  Backend backend{};
  std::string library_version;  ///< HelloRecord::library_version; major.minor is used
  /// What the profile declares; marked as declared.
  std::string declared_aggregation;
  std::optional<double> declared_link_bits_per_s;
  /// What [machine] declares of the network and the site; details of a regime, no ingredients.
  std::string declared_topology = {};
  std::string declared_deployment = {};
  /// Names of the ranks' nodes, in the order of their facts; empty: boot ids tell machines apart.
  std::vector<std::string> nodes = {};
  NodePlaces places = {};
};

}  // namespace dynamiccl
