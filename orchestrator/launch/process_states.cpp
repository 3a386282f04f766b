#include "orchestrator/launch/process_states.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "containers/processes.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

std::string rank_of(pid_t pid) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "DYNAMICCL_RANK"}) {
    if (const auto value = process_variable(pid, name); !value.empty()) return value;
  }
  return "";
}

std::string words_of_state(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "held by the kernel (uninterruptible)";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
      return "ended, not waited for";
    default:
      return fmt::format("state {}", state);
  }
}

/// The state letter of /proc/PID/stat, behind the name in brackets; '?' where it is gone.
char state_of(pid_t pid) {
  const auto text = file_text(fmt::format("/proc/{}/stat", pid));
  const auto bracket = text.rfind(')');
  return bracket == std::string::npos || bracket + 2 >= text.size() ? '?' : text[bracket + 2];
}

/// The kernel's function that it waits in, and the uppermost of its stack where that may be read.
std::string place_in_kernel(pid_t pid) {
  std::vector<std::string> frames;
  for (const auto& line : split(file_text(fmt::format("/proc/{}/stack", pid)), '\n')) {
    const auto name = line.find("] ");
    if (name != std::string::npos && frames.size() < 4)
      frames.push_back(line.substr(name + 2, line.find('+', name) - name - 2));
  }
  if (!frames.empty()) return ", in " + join(frames, " < ");
  const auto waits = file_text(fmt::format("/proc/{}/wchan", pid));
  return waits.empty() || waits == "0" ? "" : ", in " + waits;
}

/// Whether this user's or root's: the marker can be read in a rank's arguments, and anybody may
/// start a process with it.
bool is_ours(pid_t pid) {
  struct stat status {};
  return stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 &&
         (status.st_uid == geteuid() || status.st_uid == 0);
}

}  // namespace

std::vector<std::string> states_of_processes(const char* variable, const std::string& marker) {
  std::vector<std::string> states;
  for (const auto& process : list_processes()) {
    const bool argued = std::any_of(
        process.argv.begin(), process.argv.end(),
        [&](const std::string& word) { return word.find(marker) != std::string::npos; });
    if (!argued && process_variable(process.pid, variable) != marker) continue;
    const auto rank = rank_of(process.pid);
    states.push_back(fmt::format("{}{} (pid {}): {}{}", rank.empty() ? "" : "rank " + rank + ", ",
                                 process.name, process.pid, words_of_state(state_of(process.pid)),
                                 place_in_kernel(process.pid)));
  }
  return states;
}

std::vector<pid_t> pids_of_processes(const char* variable, const std::string& marker) {
  std::vector<pid_t> pids;
  for (const auto& process : list_processes())
    if (is_ours(process.pid) && process_variable(process.pid, variable) == marker)
      pids.push_back(process.pid);
  return pids;
}

bool has_rank(pid_t pid) { return !rank_of(pid).empty(); }

bool is_stopped(pid_t pid) { return state_of(pid) == 'T'; }

std::uint64_t switches_of(pid_t pid) {
  std::uint64_t switches = 0;
  for (const auto& line : split(file_text(fmt::format("/proc/{}/status", pid)), '\n'))
    if (const auto at = line.find("voluntary_ctxt_switches:\t"); at != std::string::npos)
      switches += std::strtoull(line.c_str() + line.rfind('\t'), nullptr, 10);
  return switches;
}

bool is_alive(pid_t pid) {
  const char state = state_of(pid);
  return state != '?' && state != 'Z' && state != 'X';
}

bool has_living_child(pid_t pid) {
  std::error_code gone;
  const std::string threads = fmt::format("/proc/{}/task", pid);
  std::filesystem::directory_iterator thread(threads, gone);
  for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    const std::string file = thread->path().string() + "/children";
    if (!std::filesystem::exists(file, gone)) return true;
    for (const auto& child : split(file_text(file), ' '))
      if (!trim(child).empty() && is_alive(std::atoi(child.c_str()))) return true;
  }
  return false;
}

}  // namespace dynamiccl
