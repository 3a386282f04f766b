#pragma once

#include <string_view>

namespace dynamiccl {

// What the kernel says of the file system under "/". Text alone, and nothing but the C++ library:
// the NCCL plugin reads it too. Source: Linux, Documentation/filesystems/proc.rst (mountinfo).

/// The line of /proc/self/mountinfo whose mount point is "/", the last one, which lies on top; ""
/// where there is none.
std::string_view root_mount(std::string_view mounts);
/// Whether that line's "/" is a whole file system of a disk: a machine of its own, which marker
/// files of the image it was made from do not turn into a container.
bool is_whole_disk(std::string_view mount);

}  // namespace dynamiccl
