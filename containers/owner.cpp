#include "containers/owner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "core/vocabulary/pid_namespace.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Field 22 of /proc/PID/stat, start time in clock ticks since boot; "" when there is no such
/// process or it is a zombie.
std::string start_ticks(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  // The name in parentheses may hold spaces: count from its end.
  const auto name_end = text.rfind(") ");
  if (name_end == std::string::npos) return "";
  const auto fields = split(text.substr(name_end + 2), ' ');
  constexpr std::size_t kStartField = 22 - 3;
  if (fields.size() <= kStartField || fields.front() == "Z" || fields.front() == "X") return "";
  return fields[kStartField];
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.substr(0, 8);
}

}  // namespace

std::string owner_token() {
  const std::string pid = std::to_string(getpid());
  // /proc may be of another namespace, where our number is somebody else's.
  return fmt::format("{}.{}.{}.{}", pid, start_ticks("self"), boot_id(), own_pid_namespace());
}

bool owner_alive(const std::string& token) {
  const auto parts = split(token, '.');
  const auto is_number = [](const std::string& text) {
    constexpr std::size_t kMostDigits = 19;
    return !text.empty() && text.size() <= kMostDigits &&
           text.find_first_not_of("0123456789") == std::string::npos;
  };
  // Three parts: made by a version that knew no namespaces.
  if (parts.size() != 3 && parts.size() != 4) return false;
  if (!is_number(parts[0]) || parts[1].empty()) return false;
  // Who cannot be seen is left alone.
  if (!sees_own_processes()) return true;
  if (parts[2] != boot_id()) return false;
  if (parts.size() == 4) {
    if (!is_number(parts[3])) return false;
    const std::uint64_t where = std::stoull(parts[3]);
    // Its number means another process here.
    if (where != own_pid_namespace()) return !pid_namespace_is_empty(where);
  }
  return start_ticks(parts[0]) == parts[1] || is_hidden_process(std::stoll(parts[0]));
}

}  // namespace dynamiccl
