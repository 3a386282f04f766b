#include "db/network_files.hpp"
#include "core/vocabulary/file_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace dynamiccl {
namespace {

struct Known {
  unsigned long type;  ///< f_type, as linux/magic.h and the file systems' own sources have it
  std::string_view name;
};

constexpr std::array kNetwork{
    Known{0x6969, "nfs"},        Known{0xff534d42, "cifs"},     Known{0xfe534d42, "smb2"},
    Known{0x517b, "smb"},        Known{0x0bd00bd0, "lustre"},   Known{0x47504653, "gpfs"},
    Known{0x19830326, "beegfs"}, Known{0x00c36400, "ceph"},     Known{0x5346414f, "afs"},
    Known{0x6b414653, "afs"},    Known{0x7461636f, "ocfs2"},    Known{0x01161970, "gfs2"},
    Known{0xaad7aaea, "panfs"},  Known{0x20030528, "orangefs"}, Known{0x01021997, "9p"}};

/// All of these are one type to statfs().
constexpr unsigned long kFuse = 0x65735546;
constexpr std::array kFuseNetwork{"fuse.sshfs",  "fuse.glusterfs", "fuse.ceph-fuse", "fuse.s3fs",
                                  "fuse.beegfs", "fuse.juicefs",   "fuse.gcsfuse",   "fuse.lustre"};

/// Locks stay on the machine that takes them, whatever the options.
constexpr std::array kNoLocks{"fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"};
/// Options by which locks stay there.
constexpr std::array kLocalLocks{"nolock",  "local_lock=all", "local_lock=posix", "localflock",
                                 "noflock", "nobrl",          "locallocks"};

std::string read_mounts() { return file_text("/proc/self/mountinfo"); }

MountFacts own_mount(const std::string& folder) {
  std::error_code error;
  return mount_of(read_mounts(), std::filesystem::canonical(folder, error).string());
}

bool lock(int file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(file, F_SETLK, &whole) == 0;
}

}  // namespace

MountFacts mount_of(const std::string& mountinfo, const std::string& path) {
  std::istringstream mounts(mountinfo);
  MountFacts facts;
  std::size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string word;
    std::string point;
    std::string own;
    for (int i = 0; i < 5; ++i) words >> point;
    words >> own;
    while (words >> word && word != "-") {
    }
    std::string type;
    std::string source;
    std::string shared;
    words >> type >> source >> shared;
    const bool holds = point == "/" || path == point || path.starts_with(point + "/");
    if (!holds || point.size() < longest) continue;
    longest = point.size();
    facts = {type, own + "," + shared};
  }
  return facts;
}

std::string why_locks_stay_local(const MountFacts& mount) {
  for (const char* type : kNoLocks)
    if (mount.type == type) return fmt::format("{} tells no other machine of locks", type);
  std::istringstream options(mount.options);
  for (std::string option; std::getline(options, option, ',');)
    for (const char* local : kLocalLocks)
      if (option == local)
        return fmt::format("it is mounted with {}, so that no other machine learns of locks",
                           option);
  return "";
}

std::string why_locks_do_not_hold(const std::string& folder) {
  if (auto why = why_locks_stay_local(own_mount(folder)); !why.empty()) return why;
  if (!locks_hold(folder)) return "a lock keeps not even another process of this machine away";
  return "";
}

std::string network_name(long type, std::string_view mounted) {
  // Types beyond 31 bits come out negative where long has 32.
  const auto number = static_cast<unsigned long>(type) & 0xffffffffUL;
  for (const Known& known : kNetwork)
    if (known.type == number) return std::string(known.name);
  if (number != kFuse) return "";
  for (const char* fuse : kFuseNetwork)
    if (mounted == fuse) return std::string(mounted);
  return "";
}

std::string network_file_system(const std::string& folder) {
  struct statfs facts {};
  if (statfs(folder.c_str(), &facts) != 0) return "";
  return network_name(static_cast<long>(facts.f_type), own_mount(folder).type);
}

bool locks_hold(const std::string& folder) {
  std::string path = folder + "/.dynamiccl-lock-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return false;
  const bool locked = lock(file);
  bool kept_away = false;
  if (locked) {
    const pid_t other = fork();
    if (other == 0) {
      const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
      _exit(again >= 0 && lock(again) ? 1 : 0);
    }
    int status = 0;
    kept_away = other > 0 && waitpid(other, &status, 0) == other && WIFEXITED(status) &&
                WEXITSTATUS(status) == 0;
  }
  unlink(path.c_str());
  close(file);
  return kept_away;
}

}  // namespace dynamiccl
