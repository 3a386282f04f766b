#include "containers/shared_memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "containers/processes.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kNames{"vader_segment.", "sm_segment.", "mpich_shar_tmp",
                                                 "ucx_shm_", "nccl-"};

/// A socket of NCCL's that nobody listens on any more: its owner would answer.
bool is_dead_socket(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (file < 0) return false;
  const bool dead =
      connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == ECONNREFUSED;
  close(file);
  return dead;
}

/// Whether a process holds it locked, seen or not: who lives with libdynamiccl-onehost.so does so.
bool is_locked(const fs::path& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct flock one {};
  one.l_type = F_WRLCK;
  one.l_whence = SEEK_SET;
  const bool locked = (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
                      (fcntl(file, F_GETLK, &one) == 0 && one.l_type != F_UNLCK);
  close(file);
  return locked;
}

bool is_segment(const fs::path& path, double since_unix_s) {
  const std::string name = path.filename().string();
  if (std::none_of(kNames.begin(), kNames.end(),
                   [&](std::string_view known) { return name.starts_with(known); }))
    return false;
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return false;
  const double changed_s = static_cast<double>(status.st_ctim.tv_sec) +
                           1e-9 * static_cast<double>(status.st_ctim.tv_nsec);
  if (status.st_uid != geteuid() || changed_s < since_unix_s) return false;
  return (S_ISREG(status.st_mode) && !is_locked(path)) ||
         (S_ISSOCK(status.st_mode) && is_dead_socket(path));
}

bool in_first_namespace(const char* kind, ino_t first) {
  struct stat status {};
  return stat((std::string("/proc/self/ns/") + kind).c_str(), &status) == 0 &&
         status.st_ino == first;
}

/// Whether whoever uses the folder is a process that is seen here, by the kernel's fixed numbers of
/// the machine's first namespaces. A folder of the machine that is mounted in a container may be
/// mounted in others.
bool sees_all_users(const std::string& folder) {
  constexpr ino_t kFirstPid = 0xEFFFFFFC;
  constexpr ino_t kFirstIpc = 0xEFFFFFFF;
  return in_first_namespace("pid", kFirstPid) ||
         (!in_first_namespace("ipc", kFirstIpc) && mount_root(folder) == "/");
}

/// A file by what it is: a container may see it under another path.
struct Segment {
  std::string path;
  struct stat status {};
};

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// "7f00-7f01 rw-s 00000000 00:1b 42    /run/job/nccl-abc" is of device 0:27, inode 42.
bool maps(pid_t pid, const Segment& segment) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with(segment.path)) return true;
    unsigned major_number = 0;
    unsigned minor_number = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%*s %*s %*s %x:%x %lu", &major_number, &minor_number, &inode) ==
            3 &&
        inode == segment.status.st_ino &&
        makedev(major_number, minor_number) == segment.status.st_dev)
      return true;
  }
  return false;
}

bool has_open(pid_t pid, const Segment& segment) {
  std::error_code code;
  for (fs::directory_iterator at("/proc/" + std::to_string(pid) + "/fd", code), end;
       !code && at != end; at.increment(code)) {
    struct stat status {};
    if (stat(at->path().c_str(), &status) == 0 && is_same(status, segment.status)) return true;
  }
  return false;
}

}  // namespace

LeftSegments remove_left_segments(const std::string& folder, double since_unix_s) {
  std::vector<Segment> left;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (Segment segment{at->path().string()};
        is_segment(at->path(), since_unix_s) && lstat(segment.path.c_str(), &segment.status) == 0)
      left.push_back(std::move(segment));
  for (const ProcessInfo& process : left.empty() ? std::vector<ProcessInfo>() : list_processes())
    std::erase_if(left, [&](const Segment& segment) {
      return maps(process.pid, segment) || has_open(process.pid, segment);
    });
  LeftSegments result;
  const bool certain = left.empty() || sees_all_users(folder);
  for (Segment& segment : left) {
    if (!certain)
      result.kept.push_back(std::move(segment.path));
    else if (unlink(segment.path.c_str()) == 0)
      result.removed.push_back(std::move(segment.path));
  }
  return result;
}

}  // namespace dynamiccl
