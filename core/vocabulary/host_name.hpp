#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace dynamiccl {

/// This host's name, as its programs see it; "" where it has none.
inline std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace dynamiccl
