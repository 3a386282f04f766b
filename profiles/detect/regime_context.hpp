#pragma once

#include <optional>
#include <string>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What the facts do not hold.
struct RegimeContext {
  Backend backend = Backend::openmpi;
  std::string library_version;  ///< HelloRecord::library_version; major.minor is used
  /// What the profile declares; marked as declared.
  std::string declared_aggregation;
  std::optional<double> declared_link_bits_per_s;
};

}  // namespace dynamiccl
