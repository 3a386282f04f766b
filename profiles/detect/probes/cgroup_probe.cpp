#include <algorithm>
#include <charconv>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/cgroup_probe.hpp"
#include "profiles/detect/probes/control_group.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

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
  return line ? quota_cores_in(*line) : std::nullopt;
}

std::optional<double> cpu_limit_v1(const ProbeRoot& root, const std::string& folder) {
  const auto number = [&](const char* file) -> std::optional<std::int64_t> {
    const auto known = root.integer(folder + file);
    return known ? std::optional(*known) : std::nullopt;
  };
  return quota_cores_of(number("/cpu.cfs_quota_us"), number("/cpu.cfs_period_us"));
}

/// What a group's tasks get next to those of its siblings, 1 = as much as a group usually does.
Known<double> cpu_weight(const ProbeRoot& root, const CgroupPaths& paths) {
  constexpr double kUsualShares = 1024;  // of version 1
  constexpr double kUsualWeight = 100;   // of version 2
  const bool v2 = paths.version == 2;
  for (const std::string& folder : paths.cpu)
    if (const auto weight = root.integer(folder + (v2 ? "/cpu.weight" : "/cpu.shares")))
      return {static_cast<double>(*weight) / (v2 ? kUsualWeight : kUsualShares), ""};
  return Known<double>::unknown("no control group above shares out CPUs");
}

std::optional<double> memory_limit(const ProbeRoot& root, const std::string& file) {
  const auto limit = root.integer(file);
  if (!limit || *limit >= kNoGroupLimit) return std::nullopt;
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
  const auto unified = group_path_in(*text, "");
  if (root.exists("/sys/fs/cgroup/cgroup.controllers") && unified) {
    paths.version = 2;
    paths.path = *unified;
    paths.cpu = paths.memory = group_folders("/sys/fs/cgroup", *unified);
    return paths;
  }
  const auto cpu = group_path_in(*text, "cpu");
  const auto memory = group_path_in(*text, "memory");
  if (!cpu && !memory) {
    paths.reason = "/proc/self/cgroup names no cpu or memory controller that is mounted";
    return paths;
  }
  paths.version = 1;
  paths.path = cpu ? *cpu : *memory;
  paths.cpu = group_folders("/sys/fs/cgroup/cpu", cpu.value_or(""));
  paths.memory = group_folders("/sys/fs/cgroup/memory", memory.value_or(""));
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
    for (const char* key :
         {"version", "path", "cpu_limit_cores", "cpu_weight", "memory_limit_bytes"})
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
    section.set("cpu_weight", cpu_weight(root, paths));
    if (memory)
      section.set("memory_limit_bytes", static_cast<std::uint64_t>(*memory));
    else
      section.unknown("memory_limit_bytes", "no limit is set");
  }
  section.set("nr_throttled", throttled_periods(root, paths));
  return std::move(section).take();
}

}  // namespace dynamiccl
