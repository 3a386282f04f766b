#pragma once

#include <sys/types.h>

#include <cstdint>

namespace dynamiccl {

/// A mark that no process loses with its environment, session or group, as children inherit limits:
/// how long one may run by a realtime schedule without a pause (RLIMIT_RTTIME). The limit is
/// 180,000 years, and its last digits name this process as the owner.
/// @returns 0 where this process's beginning is not known by the machine's clock
std::uint64_t own_limit_mark();

/// For the calling process and all that it starts from now on; between fork and exec too. Without
/// the right to it, which takes a lower limit set before, nothing changes.
void take_limit_mark(std::uint64_t mark) noexcept;

/// Whether it carries the mark of an owner that is surely dead.
bool has_mark_of_the_dead(pid_t pid);

}  // namespace dynamiccl
