#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace dynamiccl {

/// "1 launch", "2 launches", "0 cells".
/// @param one the noun for one; its plural is with "es" behind ch, sh, s and x, else with "s"
std::string counted(std::integral auto count, std::string_view one) {
  const bool hisses =
      one.ends_with("ch") || one.ends_with("sh") || one.ends_with("s") || one.ends_with("x");
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : hisses ? "es" : "s");
}

/// "0 of 3 cells", "1 of 1 cell".
std::string counted_of(std::integral auto part, std::integral auto all, std::string_view one) {
  return fmt::format("{} of {}", part, counted(all, one));
}

}  // namespace dynamiccl
