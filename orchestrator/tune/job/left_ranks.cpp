#include "orchestrator/tune/job/left_ranks.hpp"

#include <fmt/format.h>
#include <signal.h>  // NOLINT: kill() is in no C++ header
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "containers/processes.hpp"

namespace dynamiccl {
namespace {

constexpr auto kLeftPatience = std::chrono::seconds(2);
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

/// Another container or mount namespace may have a folder of that name that is another one.
bool sees_that_folder(pid_t pid, const std::string& folder) {
  struct stat here {};
  struct stat there {};
  return stat(folder.c_str(), &here) == 0 &&
         stat(fmt::format("/proc/{}/root{}", pid, folder).c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/// Who may not be looked at is nobody's rank as far as can be seen.
bool maps_files_of(pid_t pid, const std::string& folder) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);)
    if (line.find(folder + "/") != std::string::npos) return sees_that_folder(pid, folder);
  return false;
}

bool wait_for_end(const std::vector<pid_t>& ranks, const std::string& folder) {
  const auto until = std::chrono::steady_clock::now() + kLeftPatience;
  while (true) {
    bool any = false;
    // Its number may be another's by now.
    for (const pid_t rank : ranks) any = any || maps_files_of(rank, folder);
    if (!any) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

std::vector<std::string> end_ranks_of(const std::string& folder) {
  std::vector<pid_t> ranks;
  std::vector<std::string> names;
  for (const ProcessInfo& process : list_processes()) {
    if (!maps_files_of(process.pid, folder)) continue;
    ranks.push_back(process.pid);
    names.push_back(fmt::format("{} ({})", process.name, process.pid));
  }
  for (const int signal : {SIGTERM, SIGKILL}) {
    for (const pid_t rank : ranks)
      if (maps_files_of(rank, folder)) kill(rank, signal);
    if (wait_for_end(ranks, folder)) break;
  }
  return names;
}

}  // namespace dynamiccl
