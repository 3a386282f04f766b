#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dynamiccl {

/// Inode of this process's PID namespace, in which its process ids count; 0 where unknown.
std::uint64_t own_pid_namespace();

/// Whether /proc is there and shows processes by the numbers that count here, and when they began
/// by the machine's clock: a time namespace shifts it.
bool sees_own_processes();

/// Whether a process of this number is there of which /proc does not tell this user (hidepid).
bool is_hidden_process(std::int64_t pid);

/// When a process began, in clock ticks since boot; nullopt when there is none or it is a zombie, 0
/// where that cannot be found out: no file can be opened now, or none be read.
/// @param process its number, or "self"
std::optional<std::int64_t> start_ticks_of(const std::string& process);

/// What a process writes of itself, so that others can tell whether it still lives.
struct ProcessMark {
  std::int64_t pid = 0;          ///< in its PID namespace
  std::int64_t start_ticks = 0;  ///< clock ticks since boot; 0: not known by the machine's clock
  std::string boot_id;           ///< whole or its beginning; "": not known
  /// Inode; 0: not known; nullopt: of a version that wrote none, taken for this one's.
  std::optional<std::uint64_t> pid_namespace;
};
ProcessMark own_mark();

enum class ProcessState { alive, dead, unknown };
/// The state of a process of this machine. Who cannot be seen for certain is unknown.
ProcessState look_for(const ProcessMark& mark);

/// True when it is certain that no process of this machine is left in that namespace. Only root in
/// the machine's first PID namespace sees every process; all others get false.
bool pid_namespace_is_empty(std::uint64_t inode);

}  // namespace dynamiccl
