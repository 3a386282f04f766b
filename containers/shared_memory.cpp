#include "containers/shared_memory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "containers/processes.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kNames{"vader_segment.", "sm_segment.", "mpich_shar_tmp",
                                                 "ucx_shm_", "nccl-"};

bool is_segment(const fs::path& path, double since_unix_s) {
  const std::string name = path.filename().string();
  if (std::none_of(kNames.begin(), kNames.end(),
                   [&](std::string_view known) { return name.starts_with(known); }))
    return false;
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return false;
  const double changed_s = static_cast<double>(status.st_ctim.tv_sec) +
                           1e-9 * static_cast<double>(status.st_ctim.tv_nsec);
  return S_ISREG(status.st_mode) && status.st_uid == geteuid() && changed_s >= since_unix_s;
}

bool in_first_namespace(const char* kind, ino_t first) {
  struct stat status {};
  return stat((std::string("/proc/self/ns/") + kind).c_str(), &status) == 0 &&
         status.st_ino == first;
}

/// The kernel's fixed numbers of the machine's first namespaces.
bool sees_all_users() {
  constexpr ino_t kFirstPid = 0xEFFFFFFC;
  constexpr ino_t kFirstIpc = 0xEFFFFFFF;
  return in_first_namespace("pid", kFirstPid) || !in_first_namespace("ipc", kFirstIpc);
}

bool maps(pid_t pid, const std::string& path) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(file, line);)
    if (line.ends_with(path)) return true;
  return false;
}

bool has_open(pid_t pid, const std::string& path) {
  std::error_code code;
  for (fs::directory_iterator at("/proc/" + std::to_string(pid) + "/fd", code), end;
       !code && at != end; at.increment(code)) {
    std::error_code gone;
    if (fs::read_symlink(at->path(), gone) == path) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> remove_left_segments(const std::string& folder, double since_unix_s) {
  std::vector<std::string> left;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (is_segment(at->path(), since_unix_s)) left.push_back(at->path().string());
  if (left.empty() || !sees_all_users()) return {};
  for (const ProcessInfo& process : list_processes())
    std::erase_if(left, [&](const std::string& path) {
      return maps(process.pid, path) || has_open(process.pid, path);
    });
  std::erase_if(left, [](const std::string& path) { return unlink(path.c_str()) != 0; });
  return left;
}

}  // namespace dynamiccl
