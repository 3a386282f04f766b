#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Removes what killed ranks have left in a folder of shared memory. Communication libraries put
/// nobody's mark on their segments, so only those go that
///   * have a name that Open MPI, MPICH, UCX or NCCL gives,
///   * are regular files of this user's, made or changed since `since_unix_s`, or sockets that
///   nobody listens on,
///   * no process has open, mapped or locked.
/// Nothing is removed where processes may use the folder that this one cannot see: in a PID
/// namespace of a container that shares the machine's /dev/shm, or has a folder of the machine
/// mounted there.
struct LeftSegments {
  std::vector<std::string> removed;
  /// Paths that stay for the sake of processes that cannot be seen from here.
  std::vector<std::string> kept;
};
LeftSegments remove_left_segments(const std::string& folder, double since_unix_s);

}  // namespace dynamiccl
