#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dynamiccl::transport {

// What the control groups allow that this process is in: its own and those above it, as far as they
// are mounted here. A container whose group's parent has the limit may not see that. Blocking: no.
// Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, and
// scheduler/sched-bwc.rst. `root` is where "/proc" and "/sys" are looked for: "" but in tests.

/// Bytes that may still be taken before the kernel kills a process of a group: its limit less what
/// is in use and cannot be given back, and the swap space it may use. nullopt: no limit, or none
/// that can be read.
std::optional<std::uint64_t> memory_room(const std::string& root = "");

/// Whole cores of the smallest CPU quota, at least 1; 0: no quota.
unsigned quota_cores(const std::string& root = "");

}  // namespace dynamiccl::transport
