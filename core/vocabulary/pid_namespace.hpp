#pragma once

#include <cstdint>

namespace dynamiccl {

/// Inode of this process's PID namespace, in which its process ids count; 0 where unknown.
std::uint64_t own_pid_namespace();

/// True when it is certain that no process of this machine is left in that namespace. Only root in
/// the machine's first PID namespace sees every process; all others get false.
bool pid_namespace_is_empty(std::uint64_t inode);

}  // namespace dynamiccl
