#pragma once

#include <cstring>
#include <vector>

namespace dynamiccl::testing {

/// Where == would take -0 for 0 and no NaN for itself.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace dynamiccl::testing
