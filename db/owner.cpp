#include "db/owner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/vocabulary/pid_namespace.hpp"

namespace dynamiccl {
namespace {

/// Field 22 of /proc/PID/stat; nullopt when there is no such process or it is a zombie.
/// @param process its number, or "self"
std::optional<std::int64_t> start_ticks_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The program's name may hold blanks and parentheses: count from the last one.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 3 && (field == "Z" || field == "X")) return std::nullopt;
    if (number == 22) return std::stoll(field);
  }
  return std::nullopt;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

ProcessIdentity this_process() {
  const std::int64_t pid = getpid();
  return {host_name(), boot_id(), pid, static_cast<std::int64_t>(own_pid_namespace()),
          start_ticks_of("self").value_or(0)};
}

ProcessState state_of(const ProcessIdentity& process) {
  // Without /proc everybody would seem dead.
  if (!sees_own_processes()) return ProcessState::unknown;
  const ProcessIdentity here = this_process();
  if (process.boot_id != here.boot_id) {
    return process.host == here.host ? ProcessState::dead : ProcessState::unknown;
  }
  if (process.pid_namespace != here.pid_namespace)
    return pid_namespace_is_empty(static_cast<std::uint64_t>(process.pid_namespace))
               ? ProcessState::dead
               : ProcessState::unknown;
  if (is_hidden_process(process.pid)) return ProcessState::unknown;
  const auto ticks = start_ticks_of(std::to_string(process.pid));
  return ticks && *ticks == process.start_ticks ? ProcessState::alive : ProcessState::dead;
}

}  // namespace dynamiccl
