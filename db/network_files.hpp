#pragma once

#include <string>
#include <string_view>

namespace dynamiccl {

/// What a file system that several machines write at once is called ("nfs", "lustre"); "" for one
/// of this machine. Pure.
/// @param type of statfs()
/// @param mounted as /proc/self/mountinfo has it, "fuse.sshfs"
std::string network_name(long type, std::string_view mounted);

/// The same of the file system that holds a folder; "" where it is not known.
std::string network_file_system(const std::string& folder);

/// What /proc/self/mountinfo says of one mount.
struct MountFacts {
  std::string type;     ///< "nfs4"
  std::string options;  ///< of the mount and of its file system, parted by commas
};

/// The mount that holds a path. Pure. @param mountinfo the text of /proc/self/mountinfo
MountFacts mount_of(const std::string& mountinfo, const std::string& path);

/// Why other machines learn of no lock that is taken there; "" where nothing says so. Pure.
std::string why_locks_stay_local(const MountFacts& mount);

/// Tries with another process of this machine whether a lock on a file in this folder keeps it
/// away. Of other machines it proves nothing.
bool locks_hold(const std::string& folder);

/// Both: by the mount's options as far as other machines go, by a trial on this one. "" proves no
/// more than that.
std::string why_locks_do_not_hold(const std::string& folder);

}  // namespace dynamiccl
