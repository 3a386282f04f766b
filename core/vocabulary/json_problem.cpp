#include "core/vocabulary/json_problem.hpp"

#include <string_view>

namespace dynamiccl {

std::string json_problem(const nlohmann::json::exception& error) {
  std::string text = error.what();
  // "[json.exception.parse_error.101] parse error at line 2, column 5: syntax error while ..."
  if (const auto end = text.find("] "); text.starts_with("[json.exception.") && end != text.npos)
    text.erase(0, end + 2);
  constexpr std::string_view kAt = "parse error at ";
  if (!text.starts_with(kAt)) return text;
  std::string place = text.substr(kAt.size(), text.find(':') - kAt.size());
  // Most documents are one line of a file, which has a number of its own there.
  constexpr std::string_view kOnlyLine = "line 1, ";
  if (place.starts_with(kOnlyLine)) place.erase(0, kOnlyLine.size());
  return "no JSON from " + place + " on";
}

}  // namespace dynamiccl
