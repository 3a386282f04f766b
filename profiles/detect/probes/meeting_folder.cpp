#include "profiles/detect/probes/meeting_folder.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
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
int try_socket(int directory, const std::string& path) {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) return errno;
  const std::string name = folder_socket_name(random);
  sockaddr_un address{};
  if (!folder_socket_address(directory, path, name, address)) return ENAMETOOLONG;
  const int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (file < 0) return errno;
  const int error =
      bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(file);
  if (error == 0) unlinkat(directory, name.c_str(), 0);
  return error;
}

}  // namespace

std::string folder_socket_name(std::uint64_t name) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%s%016" PRIx64 ".sock", kFolderSocketPrefix, name);
  return text.data();
}

bool folder_socket_address(int directory, const std::string& path, const std::string& name,
                           sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::string full = path + "/" + name;
  if (full.size() >= sizeof address.sun_path)
    full = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
  if (full.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, full.c_str(), full.size() + 1);
  return true;
}

bool user_is_mapped(std::uint64_t user) {
  std::FILE* file = std::fopen("/proc/self/uid_map", "re");
  if (file == nullptr) return true;  // a kernel without user namespaces
  bool mapped = false;
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  while (std::fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &inside, &outside, &count) == 3)
    mapped = mapped || (user >= inside && user - inside < count);
  std::fclose(file);
  return mapped;
}

FolderTrouble unsafe_folder(const struct stat& status, std::uint64_t user, std::string& why) {
  if (!S_ISDIR(status.st_mode)) {
    why = "it is no folder";
    return FolderTrouble::not_a_folder;
  }
  if (status.st_uid != user && status.st_uid != 0) {
    why = "it belongs to user " + std::to_string(status.st_uid) +
          (user_is_mapped(status.st_uid) ? "" : ", whom this user namespace has no number for") +
          ", this process runs as " + std::to_string(user);
    return FolderTrouble::another_users;
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0) {
    why = "other users may rename what is in it";
    return FolderTrouble::open_to_others;
  }
  return FolderTrouble::none;
}

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
  found.trouble = unsafe_folder(status, found.user, found.why);
  if (found.trouble == FolderTrouble::none) {
    if (const int error = try_socket(directory, path); error != 0) {
      found.trouble = trouble_of(error);
      found.why = "no socket file can be made in it: " + std::string(std::strerror(error));
    }
  }
  close(directory);
  return found;
}

}  // namespace dynamiccl
