#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

// What the kernel's files say of control groups. Text alone, and nothing but the C++ library: the
// NCCL plugin reads them too. Source: Linux, Documentation/admin-guide/cgroup-v2.rst,
// cgroup-v1/cgroups.rst and scheduler/sched-bwc.rst.

/// Version 1 says "no limit" by the largest number that is whole pages, about this one.
inline constexpr std::int64_t kNoGroupLimit = std::int64_t{1} << 60;

/// The path that /proc/self/cgroup ("ID:CONTROLLERS:PATH" lines) gives a controller, "" for version
/// 2's; nullopt: it names none such.
std::optional<std::string> group_path_in(std::string_view text, std::string_view controller);

/// The folders of a group and of those above it, deepest first, the mounted one last. Inside a
/// container that sees its own group alone, mounted there, some or all of the others are missing.
std::vector<std::string> group_folders(const std::string& mounted, std::string path);

/// Cores of a quota: version 2's cpu.max, "QUOTA PERIOD" in microseconds; nullopt: no limit.
std::optional<double> quota_cores_in(const std::string& cpu_max);
/// Version 1's cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 is no limit.
std::optional<double> quota_cores_of(std::optional<std::int64_t> quota,
                                     std::optional<std::int64_t> period);

}  // namespace dynamiccl
