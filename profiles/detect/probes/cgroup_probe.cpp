#include <algorithm>
#include <charconv>
#include <map>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/cgroup_probe.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr int kMaxDepth = 32;
// What cgroup v1 writes for "no limit" is the largest page-aligned number.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

/// A cgroup's folder and its ancestors', deepest first. Inside a container the path may be the
/// host's while the mount shows the own cgroup as its root: paths that are not there are skipped.
std::vector<std::string> folders(const ProbeRoot& root, const std::string& mount,
                                 std::string path) {
  std::vector<std::string> found;
  for (int depth = 0; depth < kMaxDepth && !path.empty() && path != "/"; ++depth) {
    if (root.exists(mount + path)) found.push_back(mount + path);
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  found.push_back(mount);
  return found;
}

/// The tightest of the ancestors' limits.
template <class Reader>
std::optional<double> tightest(const std::vector<std::string>& candidates, const Reader& read) {
  std::optional<double> least;
  for (const std::string& folder : candidates) {
    const std::optional<double> limit = read(folder);
    if (limit && (!least || *limit < *least)) least = limit;
  }
  return least;
}

std::optional<double> cpu_limit_v2(const ProbeRoot& root, const std::string& folder) {
  const auto line = root.line(folder + "/cpu.max");
  if (!line) return std::nullopt;
  const auto parts = split(*line, ' ');
  double quota = 0;
  double period = 0;
  if (parts.size() != 2 ||
      std::from_chars(parts[0].data(), parts[0].data() + parts[0].size(), quota).ec !=
          std::errc() ||
      std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), period).ec !=
          std::errc() ||
      period <= 0)
    return std::nullopt;  // "max 100000"
  return quota / period;
}

std::optional<double> cpu_limit_v1(const ProbeRoot& root, const std::string& folder) {
  const auto quota = root.integer(folder + "/cpu.cfs_quota_us");
  const auto period = root.integer(folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> memory_limit(const ProbeRoot& root, const std::string& file) {
  const auto limit = root.integer(file);
  if (!limit || *limit >= kNoLimit) return std::nullopt;
  return static_cast<double>(*limit);
}

}  // namespace

CgroupPaths find_cgroup(const ProbeRoot& root) {
  CgroupPaths paths;
  const auto text = root.text("/proc/self/cgroup");
  if (!text) {
    paths.reason = text.reason;
    return paths;
  }
  std::map<std::string, std::string> by_controller;  // "" = version 2
  for (const std::string& line : split(*text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    for (const std::string& name : split(line.substr(first + 1, second - first - 1), ','))
      by_controller[name] = line.substr(second + 1);
  }
  const auto unified = by_controller.find("");
  if (root.exists("/sys/fs/cgroup/cgroup.controllers") && unified != by_controller.end()) {
    paths.version = 2;
    paths.path = unified->second;
    paths.cpu = paths.memory = folders(root, "/sys/fs/cgroup", unified->second);
    return paths;
  }
  if (!by_controller.contains("cpu") && !by_controller.contains("memory")) {
    paths.reason = "/proc/self/cgroup names no cpu or memory controller that is mounted";
    return paths;
  }
  paths.version = 1;
  paths.path = by_controller.contains("cpu") ? by_controller["cpu"] : by_controller["memory"];
  paths.cpu = folders(root, "/sys/fs/cgroup/cpu", by_controller["cpu"]);
  paths.memory = folders(root, "/sys/fs/cgroup/memory", by_controller["memory"]);
  return paths;
}

Known<std::int64_t> throttled_periods(const ProbeRoot& root, const CgroupPaths& paths) {
  using Result = Known<std::int64_t>;
  if (paths.version == 0) return Result::unknown(paths.reason);
  for (const std::string& folder : paths.cpu) {
    const auto stat = root.text(folder + "/cpu.stat");
    if (!stat) continue;
    for (const std::string& line : split(*stat, '\n')) {
      constexpr std::string_view kKey = "nr_throttled ";
      std::int64_t count = 0;
      if (line.starts_with(kKey) &&
          std::from_chars(line.data() + kKey.size(), line.data() + line.size(), count).ec ==
              std::errc())
        return {count, ""};
    }
  }
  return Result::unknown("no nr_throttled in cpu.stat: no CPU controller here");
}

nlohmann::json probe_cgroup(const ProbeContext& context) {
  const ProbeRoot& root = context.root;
  Section section;
  const CgroupPaths paths = find_cgroup(root);
  if (paths.version == 0) {
    for (const char* key : {"version", "path", "cpu_limit_cores", "memory_limit_bytes"})
      section.unknown(key, paths.reason);
  } else {
    section.set("version", paths.version);
    section.set("path", paths.path);
    const bool v2 = paths.version == 2;
    const auto cores = tightest(paths.cpu, [&](const std::string& folder) {
      return v2 ? cpu_limit_v2(root, folder) : cpu_limit_v1(root, folder);
    });
    const auto memory = tightest(paths.memory, [&](const std::string& folder) {
      return memory_limit(root, folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    });
    if (cores)
      section.set("cpu_limit_cores", *cores);
    else
      section.unknown("cpu_limit_cores", "no limit is set");
    if (memory)
      section.set("memory_limit_bytes", static_cast<std::uint64_t>(*memory));
    else
      section.unknown("memory_limit_bytes", "no limit is set");
  }
  section.set("nr_throttled", throttled_periods(root, paths));
  return std::move(section).take();
}

}  // namespace dynamiccl
