#pragma once

#include <cstdint>

namespace dynamiccl {

/// Inode of this process's PID namespace, in which its process ids count; 0 where unknown.
std::uint64_t own_pid_namespace();

/// Whether /proc is there and shows processes by the numbers that count here, and when they began
/// by the machine's clock: a time namespace shifts it.
bool sees_own_processes();

/// Whether a process of this number is there that /proc does not show to this user (hidepid).
bool is_hidden_process(std::int64_t pid);

/// True when it is certain that no process of this machine is left in that namespace. Only root in
/// the machine's first PID namespace sees every process; all others get false.
bool pid_namespace_is_empty(std::uint64_t inode);

}  // namespace dynamiccl
