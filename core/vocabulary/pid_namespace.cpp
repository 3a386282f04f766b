#include "core/vocabulary/pid_namespace.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

namespace dynamiccl {
namespace {

// PROC_PID_INIT_INO of include/linux/proc_ns.h.
constexpr std::uint64_t kFirstNamespace = 0xEFFFFFFC;

/// 0 with errno where it cannot be told.
std::uint64_t namespace_of(const std::string& process_folder) {
  struct stat info {};
  return stat((process_folder + "/ns/pid").c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

std::uint64_t own_pid_namespace() { return namespace_of("/proc/self"); }

bool pid_namespace_is_empty(std::uint64_t inode) {
  if (own_pid_namespace() != kFirstNamespace || geteuid() != 0) return false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::uint64_t found = namespace_of(entry.path().string());
    const bool ended = found == 0 && (errno == ENOENT || errno == ESRCH);
    if (found == inode || (found == 0 && !ended)) return false;
  }
  return !error;
}

}  // namespace dynamiccl
