#pragma once

#include <string>
#include <vector>

#include "profiles/detect/probes/probe_root.hpp"

namespace dynamiccl {

/// Where this process's control groups are.
struct CgroupPaths {
  int version = 0;                  ///< 2, 1 (also hybrid), or 0: not found
  std::string path;                 ///< as /proc/self/cgroup writes it
  std::vector<std::string> cpu;     ///< folders of the CPU controller, deepest first
  std::vector<std::string> memory;  ///< folders of the memory controller, deepest first
  std::string reason;               ///< why version is 0
};

CgroupPaths find_cgroup(const ProbeRoot& root);

/// Periods in which the CPU quota stopped this cgroup, since it was made.
Known<std::int64_t> throttled_periods(const ProbeRoot& root, const CgroupPaths& paths);

}  // namespace dynamiccl
