#pragma once

#include <cstdint>
#include <string>

#include "core/vocabulary/pid_namespace.hpp"

namespace dynamiccl {

/// Names one process for ever: process ids are reused, also across reboots and PID namespaces.
struct ProcessIdentity {
  std::string host;
  std::string boot_id;
  std::int64_t pid = 0;
  std::int64_t pid_namespace = 0;  ///< inode
  std::int64_t start_ticks = 0;    ///< clock ticks since boot

  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity this_process();

/// Whether the process still runs; unknown of another host or PID namespace.
ProcessState state_of(const ProcessIdentity& process);

}  // namespace dynamiccl
