#include "core/vocabulary/pid_namespace.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <string>

namespace dynamiccl {
namespace {

// PROC_PID_INIT_INO and PROC_TIME_INIT_INO of include/linux/proc_ns.h.
constexpr std::uint64_t kFirstNamespace = 0xEFFFFFFC;
constexpr std::uint64_t kFirstTimeNamespace = 0xEFFFFFFA;

/// 0 with errno where it cannot be told.
std::uint64_t namespace_of(const std::string& process_folder) {
  struct stat info {};
  return stat((process_folder + "/ns/pid").c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

std::uint64_t own_pid_namespace() { return namespace_of("/proc/self"); }

bool sees_own_processes() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self", error);
  if (error || self != std::to_string(getpid())) return false;
  struct stat time {};
  // Kernels before 5.6 have no time namespaces.
  return stat("/proc/self/ns/time", &time) != 0 || time.st_ino == kFirstTimeNamespace;
}

bool is_hidden_process(std::int64_t pid) {
  if (pid <= 0 || pid > std::numeric_limits<pid_t>::max()) return false;
  std::error_code error;
  return !std::filesystem::exists("/proc/" + std::to_string(pid), error) &&
         kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM;
}

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
