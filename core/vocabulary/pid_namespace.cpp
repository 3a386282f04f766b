#include "core/vocabulary/pid_namespace.hpp"
#include "core/vocabulary/file_text.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace dynamiccl {
namespace {

// PROC_PID_INIT_INO and PROC_TIME_INIT_INO of include/linux/proc_ns.h.
constexpr std::uint64_t kFirstNamespace = 0xEFFFFFFC;
constexpr std::uint64_t kFirstTimeNamespace = 0xEFFFFFFA;

/// 0 with errno where it cannot be found out.
std::uint64_t namespace_of(const std::string& process_folder) {
  struct stat info {};
  return stat((process_folder + "/ns/pid").c_str(), &info) == 0 ? info.st_ino : 0;
}

/// Whether /proc says by the machine's clock when a process began: a time namespace shifts it.
bool has_machines_clock() {
  struct stat time {};
  // Kernels before 5.6 have no time namespaces.
  return stat("/proc/self/ns/time", &time) != 0 || time.st_ino == kFirstTimeNamespace;
}

/// "" where it cannot be read.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

}  // namespace

std::optional<std::int64_t> start_ticks_of(const std::string& process) {
  errno = 0;
  const auto read = read_file("/proc/" + process + "/stat");
  if (!read)
    return errno == ENOENT || errno == ESRCH ? std::nullopt : std::optional<std::int64_t>(0);
  const std::string& text = *read;
  // Field 22. The program's name may hold blanks, line breaks and parentheses: count from the last
  // one.
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; fields >> field; ++number) {
    if (number == 3 && (field == "Z" || field == "X")) return std::nullopt;
    if (number == 22) return std::stoll(field);
  }
  return std::nullopt;
}

std::uint64_t own_pid_namespace() { return namespace_of("/proc/self"); }

bool sees_own_processes() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self", error);
  return !error && self == std::to_string(getpid()) && has_machines_clock();
}

bool is_hidden_process(std::int64_t pid) {
  if (pid <= 0 || pid > std::numeric_limits<pid_t>::max()) return false;
  // hidepid=1 shows the folder and not what is in it, hidepid=2 neither.
  const int file = open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    close(file);
    return false;
  }
  if (errno == EACCES || errno == EPERM) return true;
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM;
}

ProcessMark own_mark() {
  return {getpid(), has_machines_clock() ? start_ticks_of("self").value_or(0) : 0, boot_id(),
          own_pid_namespace()};
}

ProcessState look_for(const ProcessMark& mark) {
  const std::string here = boot_id();
  if (mark.boot_id.empty() || here.empty()) return ProcessState::unknown;
  if (!here.starts_with(mark.boot_id)) return ProcessState::dead;
  if (!sees_own_processes() || mark.pid_namespace == 0) return ProcessState::unknown;
  // Its number means another process here.
  if (mark.pid_namespace && *mark.pid_namespace != own_pid_namespace())
    return pid_namespace_is_empty(*mark.pid_namespace) ? ProcessState::dead : ProcessState::unknown;
  if (is_hidden_process(mark.pid)) return ProcessState::unknown;
  const auto ticks = start_ticks_of(std::to_string(mark.pid));
  if (!ticks) return ProcessState::dead;
  if (mark.start_ticks == 0 || *ticks == 0) return ProcessState::unknown;
  return *ticks == mark.start_ticks ? ProcessState::alive : ProcessState::dead;
}

bool pid_namespace_is_empty(std::uint64_t inode) {
  if (own_pid_namespace() != kFirstNamespace || geteuid() != 0) return false;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::uint64_t found = namespace_of(at->path().string());
    const bool ended = found == 0 && (errno == ENOENT || errno == ESRCH);
    if (found == inode || (found == 0 && !ended)) return false;
  }
  return !error;
}

}  // namespace dynamiccl
