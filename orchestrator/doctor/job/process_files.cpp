#include "orchestrator/doctor/job/process_files.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>

#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/pid_namespace.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/elf.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

std::string proc_path(pid_t pid, std::string_view file) {
  return fmt::format("/proc/{}/{}", pid, file);
}

std::string link_text(const std::string& path) {
  std::error_code none;
  return fs::read_symlink(path, none).string();
}

/// The number behind "NAME:" or "NAME " at a line's beginning; 0 where there is none.
std::uint64_t number_of_line(const std::string& text, std::string_view name) {
  for (const auto& line : split(text, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto digit = line.find_first_of("0123456789", name.size());
    std::uint64_t value = 0;
    if (digit != std::string::npos)
      std::from_chars(line.data() + digit, line.data() + line.size(), value);
    return value;
  }
  return 0;
}

/// Nanoseconds on a core and waiting for one.
struct CoreTimes {
  double run_s = 0;
  double wait_s = 0;
};

CoreTimes core_times(const std::string& schedstat) {
  std::istringstream fields(file_text(schedstat));
  double run = 0, wait = 0;
  fields >> run >> wait;
  return {run / 1e9, wait / 1e9};
}

double cpu_of(pid_t pid) {
  double sum = 0;
  std::error_code gone;
  for (fs::directory_iterator thread(proc_path(pid, "task"), gone), end; !gone && thread != end;
       thread.increment(gone))
    sum += core_times(thread->path().string() + "/schedstat").run_s;
  return sum;
}

/// The system call that the main thread waits in, in words; "" where it runs or may not be seen.
std::string kernel_call_of(pid_t pid) {
  struct CallName {
    long number;
    const char* words;
    bool on_file;
  };
  static constexpr std::array kCalls{
      CallName{SYS_read, "read", true},
      CallName{SYS_pread64, "read", true},
      CallName{SYS_readv, "read", true},
      CallName{SYS_write, "write", true},
      CallName{SYS_pwrite64, "write", true},
      CallName{SYS_writev, "write", true},
      CallName{SYS_fsync, "sync", true},
      CallName{SYS_fdatasync, "sync", true},
      CallName{SYS_flock, "lock", true},
      CallName{SYS_recvfrom, "receive", true},
      CallName{SYS_recvmsg, "receive", true},
      CallName{SYS_sendto, "send", true},
      CallName{SYS_sendmsg, "send", true},
      CallName{SYS_connect, "connect", true},
      CallName{SYS_nanosleep, "asleep", false},
      CallName{SYS_clock_nanosleep, "asleep", false},
      CallName{SYS_restart_syscall, "asleep", false},
      CallName{SYS_futex, "waiting for a lock or another thread", false},
      CallName{SYS_wait4, "waiting for the end of a process it started", false},
      CallName{SYS_waitid, "waiting for the end of a process it started", false},
      CallName{SYS_epoll_wait, "waiting for events (epoll)", false},
      CallName{SYS_epoll_pwait, "waiting for events (epoll)", false},
      CallName{SYS_ppoll, "waiting for events (poll)", false},
      CallName{SYS_pselect6, "waiting for events (select)", false},
#ifdef SYS_poll
      CallName{SYS_poll, "waiting for events (poll)", false},
      CallName{SYS_select, "waiting for events (select)", false},
      CallName{SYS_open, "waiting for the opening of a file", false},
#endif
      CallName{SYS_openat, "waiting for the opening of a file", false},
  };
  std::istringstream fields(file_text(proc_path(pid, "syscall")));
  std::string number, first;
  if (!(fields >> number >> first) || number == "running" || number == "-1") return "";
  const long call = std::strtol(number.c_str(), nullptr, 10);
  const auto known = std::find_if(kCalls.begin(), kCalls.end(),
                                  [&](const CallName& one) { return one.number == call; });
  if (known == kCalls.end()) return fmt::format("in system call {}", call);
  if (!known->on_file) return known->words;
  const auto descriptor = std::strtol(first.c_str(), nullptr, 16);
  const auto file = link_text(proc_path(pid, fmt::format("fd/{}", descriptor)));
  return fmt::format("in a {} of {}", known->words, file.empty() ? "a file" : file);
}

struct Throttling {
  double seconds = 0;
  std::uint64_t periods = 0;
};

/// What held its control group back, by version 2 or 1; of the group and those above it the one
/// that was held back most.
Throttling throttling_of(pid_t pid) {
  Throttling most;
  for (const auto& line : split(file_text(proc_path(pid, "cgroup")), '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto kinds = split(line.substr(first + 1, second - first - 1), ',');
    const bool version_1 = std::find(kinds.begin(), kinds.end(), "cpu") != kinds.end();
    if (!version_1 && !line.starts_with("0::")) continue;
    const std::string root = version_1 ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup";
    for (std::string path = line.substr(second + 1); path.size() > 1;
         path.resize(path.rfind('/'))) {
      const auto text = file_text(root + path + "/cpu.stat");
      const double seconds =
          version_1 ? static_cast<double>(number_of_line(text, "throttled_time ")) / 1e9
                    : static_cast<double>(number_of_line(text, "throttled_usec ")) / 1e6;
      if (seconds > most.seconds) most = {seconds, number_of_line(text, "nr_throttled ")};
    }
  }
  return most;
}

/// "0100007F:9C4A" of /proc/net/tcp, and the longer form of tcp6, as people write them.
std::string address_text(const std::string& hex) {
  const auto colon = hex.find(':');
  if (colon == std::string::npos || colon < 8) return hex;
  // The last four bytes: of IPv6 those that hold an IPv4 address where it is one.
  const auto last = hex.substr(colon - 8, 8);
  const auto number = std::strtoul(last.c_str(), nullptr, 16);
  const auto port = std::strtoul(hex.c_str() + colon + 1, nullptr, 16);
  return fmt::format("{}{}.{}.{}.{}:{}", colon > 8 ? "..." : "", number & 0xff, number >> 8 & 0xff,
                     number >> 16 & 0xff, number >> 24 & 0xff, port);
}

std::set<std::string> socket_numbers(pid_t pid) {
  std::set<std::string> numbers;
  std::error_code gone;
  for (fs::directory_iterator file(proc_path(pid, "fd"), gone), end; !gone && file != end;
       file.increment(gone)) {
    const auto target = link_text(file->path().string());
    if (target.starts_with("socket:[")) numbers.insert(target.substr(8, target.size() - 9));
  }
  return numbers;
}

}  // namespace

std::vector<ProcessStat> all_processes() {
  std::vector<ProcessStat> all;
  std::error_code gone;
  for (fs::directory_iterator entry("/proc", gone), end; !gone && entry != end;
       entry.increment(gone)) {
    const pid_t pid = std::atoi(entry->path().filename().c_str());
    if (pid <= 0) continue;
    const auto text = file_text(proc_path(pid, "stat"));
    const auto open = text.find('(');
    const auto close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    ProcessStat process;
    process.pid = pid;
    process.name = text.substr(open + 1, close - open - 1);
    std::istringstream rest(text.substr(close + 1));
    std::vector<std::string> fields{"", "", ""};  // from the third field on (proc(5))
    for (std::string word; rest >> word;) fields.push_back(word);
    if (fields.size() < 20) continue;
    process.state = fields[3][0];
    process.parent = std::atoi(fields[4].c_str());
    process.nice = std::atoi(fields[19].c_str());
    if (fields.size() > 52) process.wait_status = std::atoi(fields[52].c_str());
    all.push_back(std::move(process));
  }
  return all;
}

std::map<std::string, std::string> variables_of(pid_t pid) {
  std::map<std::string, std::string> variables;
  for (const auto& word : split(file_text(proc_path(pid, "environ")), '\0'))
    if (const auto equals = word.find('='); equals != std::string::npos)
      variables.emplace(word.substr(0, equals), word.substr(equals + 1));
  return variables;
}

std::vector<ProcessStat> tree_of(pid_t root, const std::vector<ProcessStat>& all) {
  std::vector<ProcessStat> tree;
  std::set<pid_t> inside{root};
  // Parents need not stand before their children, so until nothing is added.
  for (std::size_t before = 0; before != inside.size();) {
    before = inside.size();
    for (const auto& process : all)
      if (inside.contains(process.parent)) inside.insert(process.pid);
  }
  for (const auto& process : all)
    if (inside.contains(process.pid)) tree.push_back(process);
  return tree;
}

RankLook look_at_process(pid_t pid, const std::vector<ProcessStat>& all) {
  RankLook look;
  for (const auto& process : tree_of(pid, all)) {
    if (process.pid == pid) look.state = process.state;
    look.cpu_s += cpu_of(process.pid);
    const auto io = file_text(proc_path(process.pid, "io"));
    look.io_bytes += number_of_line(io, "rchar") + number_of_line(io, "wchar");
  }
  const auto main_thread = core_times(proc_path(pid, fmt::format("task/{}/schedstat", pid)));
  look.run_s = main_thread.run_s;
  look.wait_s = main_thread.wait_s;
  look.kernel_call = kernel_call_of(pid);
  const auto held = throttling_of(pid);
  look.throttled_s = held.seconds;
  look.throttled = held.periods;
  return look;
}

std::vector<LoadedLibrary> loaded_libraries(pid_t pid) {
  struct Family {
    std::string_view file;
    std::string_view name;
  };
  static constexpr std::array kFamilies{
      Family{"libmpi.so", "Open MPI"},   Family{"libmpich.so", "MPICH"},
      Family{"libmpi_abi.so", "MPI"},    Family{"libgloo", "Gloo"},
      Family{"libnccl.so", "NCCL"},      Family{"librccl.so", "RCCL"},
      Family{"libtorch_cpu", "PyTorch"}, Family{"libucp.so", "UCX"},
      Family{"libcuda.so", "CUDA"},
  };
  std::vector<LoadedLibrary> found;
  std::set<std::string> seen;
  const ProbeRoot root(proc_path(pid, "root"));
  for (const auto& line : split(file_text(proc_path(pid, "maps")), '\n')) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    auto path = line.substr(slash);
    if (constexpr std::string_view kGone = " (deleted)"; path.ends_with(kGone))
      path.resize(path.size() - kGone.size());
    if (!seen.insert(path).second) continue;
    const auto file = path.substr(path.rfind('/') + 1);
    for (const auto& family : kFamilies) {
      if (!file.starts_with(family.file)) continue;
      const auto id = elf_build_id(root, path);
      found.push_back({std::string(family.name), path, id ? *id : ""});
    }
  }
  return found;
}

std::vector<StuckSocket> stuck_sockets(pid_t pid) {
  std::vector<StuckSocket> stuck;
  const auto own = socket_numbers(pid);
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    for (const auto& line : split(file_text(proc_path(pid, table)), '\n')) {
      // sl local remote state tx:rx timer:when retransmits uid timeout inode
      std::istringstream fields(line);
      std::vector<std::string> field;
      for (std::string word; field.size() < 10 && fields >> word;) field.push_back(word);
      if (field.size() < 10 || !own.contains(field[9])) continue;
      const bool connecting = field[3] == "02";
      const auto queued = std::strtoull(field[4].c_str(), nullptr, 16);
      const auto retransmits = static_cast<int>(std::strtol(field[6].c_str(), nullptr, 16));
      if (retransmits > 0 && (connecting || queued > 0))
        stuck.push_back({address_text(field[2]), connecting, queued, retransmits});
    }
  }
  return stuck;
}

pid_t pid_inside(pid_t pid) {
  for (const auto& line : split(file_text(proc_path(pid, "status")), '\n'))
    if (line.starts_with("NSpid:")) {
      const auto last = line.find_last_not_of("0123456789");
      return std::atoi(line.c_str() + last + 1);
    }
  return pid;
}

std::string process_identity(pid_t pid) {
  const auto ticks = start_ticks_of(std::to_string(pid));
  if (!ticks) return "";
  return fmt::format("{} {} {}", trim(file_text("/proc/sys/kernel/random/boot_id")), *ticks,
                     pid_inside(pid));
}

void read_surroundings(LiveRank& rank) {
  rank.libraries = loaded_libraries(rank.pid);
  rank.inner_pid = pid_inside(rank.pid);
  rank.identity = process_identity(rank.pid);
  for (const auto& library : rank.libraries)
    for (const char* name : {"CUDA", "NCCL", "RCCL"})
      rank.on_gpu = rank.on_gpu || library.name == name;
  const auto variables = variables_of(rank.pid);
  for (const auto& [name, slow] :
       {std::pair{"NCCL_P2P_DISABLE", "1"}, std::pair{"NCCL_SHM_DISABLE", "1"},
        std::pair{"NCCL_P2P_LEVEL", "LOC"}, std::pair{"NCCL_P2P_LEVEL", "0"}})
    if (const auto set = variables.find(name); set != variables.end() && set->second == slow)
      rank.slow_settings +=
          (rank.slow_settings.empty() ? "" : " ") + std::string(name) + "=" + set->second;
  rank.user_namespace = link_text(proc_path(rank.pid, "ns/user"));
  rank.ipc_namespace = link_text(proc_path(rank.pid, "ns/ipc"));
  struct statvfs shm {};
  if (statvfs(proc_path(rank.pid, "root/dev/shm").c_str(), &shm) == 0) {
    rank.shm_bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    rank.shm_free_bytes = std::uint64_t{shm.f_bavail} * shm.f_frsize;
    std::error_code gone;
    for (std::filesystem::directory_iterator entry(proc_path(rank.pid, "root/dev/shm"), gone), end;
         !gone && entry != end; entry.increment(gone)) {
      std::error_code none;
      if (!entry->path().filename().string().starts_with("nccl-")) continue;
      const auto bytes = entry->file_size(none);
      if (none) continue;
      ++rank.nccl_files;
      rank.nccl_files_bytes += bytes;
    }
  }
  for (const auto& line : split(file_text(proc_path(rank.pid, "status")), '\n'))
    if (constexpr std::string_view kCores = "Cpus_allowed_list:"; line.starts_with(kCores))
      if (const auto cores = trim(std::string_view(line).substr(kCores.size()));
          cores.find_first_of(",-") == std::string_view::npos)
        rank.only_core = cores;
  rank.memlock_bytes = std::numeric_limits<std::uint64_t>::max();
  for (const auto& line : split(file_text(proc_path(rank.pid, "limits")), '\n'))
    if (line.starts_with("Max locked memory") && line.find("unlimited") == std::string::npos)
      rank.memlock_bytes = number_of_line(line, "Max locked memory");
}

}  // namespace dynamiccl
