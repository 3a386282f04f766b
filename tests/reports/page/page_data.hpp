#pragma once

#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl::testing {

/// What a report page carries for its scripts.
inline nlohmann::json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const auto from = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

}  // namespace dynamiccl::testing
