#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dynamiccl::transport {

/// Bytes that this process's control group may still take before the kernel kills one of its
/// processes: its limit less what is in use and cannot be given back, and the swap space it may
/// use. nullopt: no limit, or none that can be read. Blocking: no.
/// @param folder where control groups are mounted. A container sees its own group there; a process
///   that sees the machine's root group has no limit there.
/// Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst
std::optional<std::uint64_t> memory_room(const std::string& folder = "/sys/fs/cgroup");

}  // namespace dynamiccl::transport
