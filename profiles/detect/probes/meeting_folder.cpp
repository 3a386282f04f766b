#include "profiles/detect/probes/meeting_folder.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace dynamiccl {
namespace {

std::string filesystem_name(int directory) {
  // statfs(2); file systems that folders of jobs lie on.
  static constexpr std::array<std::pair<std::uint64_t, const char*>, 14> kKnown{
      {{0x01021994, "tmpfs"},
       {0xef53, "ext4"},
       {0x58465342, "xfs"},
       {0x9123683e, "btrfs"},
       {0x794c7630, "overlay"},
       {0x6969, "nfs"},
       {0xff534d42, "cifs"},
       {0xfe534d42, "smb2"},
       {0x65735546, "fuse"},
       {0x01021997, "9p"},
       {0x0bd00bd0, "lustre"},
       {0x00c36400, "ceph"},
       {0x47504653, "gpfs"},
       {0x2fc12fc1, "zfs"}}};
  struct statfs volume {};
  if (fstatfs(directory, &volume) != 0) return "unknown";
  // A type is 32 bits wide; the field is signed and wider.
  const std::uint64_t type = static_cast<std::uint32_t>(volume.f_type);
  for (const auto& [number, name] : kKnown)
    if (number == type) return name;
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, type);
  return text.data();
}

FolderTrouble trouble_of(int error) {
  switch (error) {
    case EROFS:
      return FolderTrouble::not_writable;
    case EACCES:
      return FolderTrouble::forbidden;
    case ENOSPC:
    case EDQUOT:
      return FolderTrouble::full;
    default:
      return FolderTrouble::no_sockets;
  }
}

/// @returns 0, or why no socket file can be made
int try_socket(const std::string& path) {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Named as NCCL's own: what removes those that ended processes left removes this one, too.
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/nccl-socket-try-%016" PRIx64,
                path.c_str(), random);
  const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0) return errno;
  const int error =
      bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(file);
  if (error == 0) unlink(address.sun_path);
  return error;
}

/// Of a folder that is there. What the library that uses it refuses, in its order.
void look_inside(int directory, const std::string& path, MeetingFolder& found) {
  constexpr std::size_t kLongestPath = 64;
  constexpr std::uint64_t kLeastFree = std::uint64_t{64} << 20;
  const auto refuse = [&](FolderTrouble trouble, const std::string& why) {
    found.trouble = trouble;
    found.why = why;
  };
  struct statvfs space {};
  const bool known = fstatvfs(directory, &space) == 0;
  if (known) found.size_bytes = std::uint64_t{space.f_blocks} * space.f_frsize;
  if (path.size() > kLongestPath)
    return refuse(FolderTrouble::too_long, "its path has more than " +
                                               std::to_string(kLongestPath) +
                                               " letters, and names of sockets are short");
  if (found.filesystem != "tmpfs")
    return refuse(FolderTrouble::not_memory, "it lies on " + found.filesystem +
                                                 ", not in a tmpfs, which alone belongs to one "
                                                 "machine");
  if (const int error = try_socket(path); error != 0)
    return refuse(trouble_of(error),
                  "no socket file can be made in it: " + std::string(std::strerror(error)));
  const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (known && space.f_blocks != 0 && free < kLeastFree)
    refuse(FolderTrouble::full,
           std::to_string(free >> 20) + " MiB are free in it, and NCCL needs at least 64");
}

}  // namespace

MeetingFolder look_at_meeting_folder(const std::string& path) {
  MeetingFolder found;
  found.user = geteuid();
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat status {};
  if (directory < 0 || fstat(directory, &status) != 0) {
    const int error = errno;
    const bool link = (error == ENOENT || error == ELOOP) && lstat(path.c_str(), &status) == 0;
    found.trouble = error == ENOTDIR || link ? FolderTrouble::not_a_folder
                    : error == ENAMETOOLONG  ? FolderTrouble::too_long
                    : error == EACCES        ? FolderTrouble::forbidden
                                             : FolderTrouble::missing;
    found.why = link ? "it is a link to nothing"
                     : "it cannot be opened: " + std::string(std::strerror(error));
    if (directory >= 0) close(directory);
    return found;
  }
  found.owner = status.st_uid;
  found.mode = status.st_mode & 07777;
  found.filesystem = filesystem_name(directory);
  look_inside(directory, path, found);
  close(directory);
  return found;
}

}  // namespace dynamiccl
