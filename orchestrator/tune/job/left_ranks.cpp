#include "orchestrator/tune/job/left_ranks.hpp"

#include <fmt/format.h>
#include <signal.h>  // NOLINT: kill() is in no C++ header
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <thread>

#include "containers/processes.hpp"
#include "core/vocabulary/file_text.hpp"
#include "profiles/detect/fact_access.hpp"
#include "tuner/job/job_facts.hpp"

namespace dynamiccl {
namespace {

constexpr auto kLeftPatience = std::chrono::seconds(2);
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

/// A process as it has registered in the launch's folder.
struct Told {
  std::uint64_t pid_namespace = 0;
  std::int64_t pid = 0;  ///< in it
  bool operator==(const Told&) const = default;
};

/// Where a launch's ranks have registered, by the name that they know and by one of here.
struct Place {
  std::string folder;
  std::string held;
  std::vector<Told> told{};
};

std::vector<Told> told_in(const std::string& folder) {
  std::vector<Told> told;
  for (const nlohmann::json& rank : ranks_told_in(folder)) {
    const auto space = whole_number<std::uint64_t>(fact(rank, "namespaces", "pid"));
    const auto pid = whole_number<std::int64_t>(fact(rank, "process", "pid"));
    if (space && pid) told.push_back({*space, *pid});
  }
  return told;
}

/// Its number where it counts itself.
Told as_it_would_tell(pid_t pid) {
  const std::string folder = fmt::format("/proc/{}", pid);
  constexpr std::string_view kNumbers = "NSpid:";
  struct stat space {};
  std::istringstream lines(file_text(folder + "/status"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kNumbers) && stat((folder + "/ns/pid").c_str(), &space) == 0)
      return {space.st_ino, std::strtoll(line.c_str() + line.find_last_of(" \t") + 1, nullptr, 10)};
  return {};
}

/// Another container or mount namespace may have a folder of that name that is another one.
bool sees_that_folder(pid_t pid, const Place& place) {
  struct stat here {};
  struct stat there {};
  return stat(place.held.c_str(), &here) == 0 &&
         stat(fmt::format("/proc/{}/root{}", pid, place.folder).c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/// It has registered as a rank, and still has files of the folder in its memory: whoever merely
/// looks at them is none, nor is who has got the number of one since. Who may not be looked at is
/// nobody's rank as far as can be seen.
bool is_rank_of(pid_t pid, const Place& place) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);)
    if (line.find(place.folder + "/") != std::string::npos)
      return sees_that_folder(pid, place) && std::find(place.told.begin(), place.told.end(),
                                                       as_it_would_tell(pid)) != place.told.end();
  return false;
}

bool wait_for_end(const std::vector<pid_t>& ranks, const Place& place) {
  const auto until = std::chrono::steady_clock::now() + kLeftPatience;
  while (true) {
    bool any = false;
    // Its number may be another's by now.
    for (const pid_t rank : ranks) any = any || is_rank_of(rank, place);
    if (!any) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

std::vector<std::string> end_ranks_of(const std::string& folder, const std::string& held) {
  const Place place{folder, held, told_in(held)};
  std::vector<pid_t> ranks;
  std::vector<std::string> names;
  for (const ProcessInfo& process : list_processes()) {
    if (!is_rank_of(process.pid, place)) continue;
    ranks.push_back(process.pid);
    names.push_back(fmt::format("{} ({})", process.name, process.pid));
  }
  for (const int signal : {SIGTERM, SIGKILL}) {
    for (const pid_t rank : ranks)
      if (is_rank_of(rank, place)) kill(rank, signal);
    if (wait_for_end(ranks, place)) break;
  }
  return names;
}

}  // namespace dynamiccl
