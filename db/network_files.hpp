#pragma once

#include <string>
#include <string_view>

namespace dynamiccl {

/// What a file system that several machines write at once is called ("nfs", "lustre"); "" for one
/// of this machine. Pure.
/// @param type of statfs()
/// @param mounted as /proc/self/mountinfo has it, "fuse.sshfs"
std::string network_name(long type, std::string_view mounted);

/// The same of the file system that holds a folder; "" where it cannot be told.
std::string network_file_system(const std::string& folder);

/// Tries with another process whether a lock on a file in this folder keeps it away.
bool locks_hold(const std::string& folder);

}  // namespace dynamiccl
