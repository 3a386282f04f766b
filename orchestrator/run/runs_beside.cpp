#include "orchestrator/run/runs_beside.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "containers/processes.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

constexpr std::array<std::string_view, 4> kMeasuringVerbs{"run", "tune", "replay", "doctor"};

bool measures(const ProcessInfo& process) {
  return process.argv.size() > 1 && std::find(kMeasuringVerbs.begin(), kMeasuringVerbs.end(),
                                              process.argv[1]) != kMeasuringVerbs.end();
}

bool share_cores(pid_t a, pid_t b) {
  cpu_set_t of_a;
  cpu_set_t of_b;
  // Who cannot be asked is taken to use all cores.
  if (sched_getaffinity(a, sizeof of_a, &of_a) != 0) return true;
  if (sched_getaffinity(b, sizeof of_b, &of_b) != 0) return true;
  cpu_set_t both;
  CPU_AND(&both, &of_a, &of_b);
  return CPU_COUNT(&both) > 0;
}

}  // namespace

std::set<pid_t> runs_beside() {
  constexpr pid_t kThisProcess = 0;
  std::set<pid_t> found;
  // By the file: a link to it may have any name.
  for (const ProcessInfo& process : list_processes_of("dynamiccl"))
    if (measures(process) && share_cores(process.pid, kThisProcess)) found.insert(process.pid);
  return found;
}

std::string with_runs_beside(const std::string& flags_json, const std::set<pid_t>& seen) {
  if (seen.empty()) return flags_json;
  auto flags = json_or_discarded(flags_json);
  if (!flags.is_array()) flags = nlohmann::json::array();
  flags.push_back(fmt::format("another run measured on the same cores: process{} {}",
                              seen.size() == 1 ? "" : "es", fmt::join(seen, ", ")));
  return flags.dump();
}

}  // namespace dynamiccl
