#include "containers/owner.hpp"

#include <fmt/format.h>
#include <optional>

#include "core/vocabulary/pid_namespace.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kBootDigits = 8;

std::optional<std::int64_t> number_of(const std::string& text) {
  constexpr std::size_t kMostDigits = 18;
  if (text.empty() || text.size() > kMostDigits ||
      text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(text);
}

}  // namespace

std::string owner_token() {
  const ProcessMark mark = own_mark();
  return fmt::format("{}.{}.{}.{}", mark.pid, mark.start_ticks, mark.boot_id.substr(0, kBootDigits),
                     mark.pid_namespace.value_or(0));
}

bool owner_alive(const std::string& token) {
  const auto parts = split(token, '.');
  // Three parts: made by a version that knew no namespaces.
  if (parts.size() != 3 && parts.size() != 4) return false;
  const auto pid = number_of(parts[0]);
  const auto ticks = number_of(parts[1]);
  const auto where = parts.size() == 4 ? number_of(parts[3]) : std::nullopt;
  if (!pid || !ticks || (parts.size() == 4 && !where)) return false;
  ProcessMark mark{*pid, *ticks, parts[2], std::nullopt};
  if (where) mark.pid_namespace = static_cast<std::uint64_t>(*where);
  // Who cannot be seen is left alone.
  return look_for(mark) != ProcessState::dead;
}

}  // namespace dynamiccl
