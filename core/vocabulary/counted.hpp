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

}  // namespace dynamiccl
