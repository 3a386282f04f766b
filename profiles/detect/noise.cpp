#include "profiles/detect/noise.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/cgroup_probe.hpp"
#include "profiles/detect/probes/known.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345": the average in percent and the total in
/// microseconds since boot.
void read_pressure(const ProbeRoot& root, const std::string& resource, Section& section) {
  const auto text = root.text("/proc/pressure/" + resource, 4096);
  const std::string some_key = "psi_" + resource + "_some_avg10_percent";
  const std::string total_key = "psi_" + resource + "_some_total_us";
  double average = 0;
  unsigned long long total = 0;
  if (!text || std::sscanf(text->c_str(), "some avg10=%lf avg60=%*f avg300=%*f total=%llu",
                           &average, &total) != 2) {
    const std::string reason = text ? "/proc/pressure/" + resource + " is damaged" : text.reason;
    section.unknown(some_key, reason);
    section.unknown(total_key, reason);
    return;
  }
  section.set(some_key, average);
  section.set(total_key, total);
}

std::vector<std::uint64_t> numbers(std::string_view text) {
  std::vector<std::uint64_t> values;
  for (const std::string& word : split(trim(text), ' ')) {
    std::uint64_t value = 0;
    if (std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc())
      values.push_back(value);
  }
  return values;
}

void read_stat(const ProbeRoot& root, Section& section) {
  const auto stat = root.text("/proc/stat", std::size_t{1} << 20);
  const std::vector<std::string> lines = stat ? split(*stat, '\n') : std::vector<std::string>{};
  const auto find = [&](std::string_view key) -> std::vector<std::uint64_t> {
    for (const std::string& line : lines)
      if (line.starts_with(key)) return numbers(std::string_view(line).substr(key.size()));
    return {};
  };
  // user nice system idle iowait irq softirq steal; guest time is part of user time.
  const auto cpu = find("cpu ");
  constexpr std::size_t kFields = 8;
  if (cpu.size() >= kFields) {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < kFields; ++i) all += cpu[i];
    section.set("cpu_jiffies", all);
    section.set("idle_jiffies", cpu[3] + cpu[4]);
    section.set("steal_jiffies", cpu[7]);
    section.set("interrupt_jiffies", cpu[5] + cpu[6]);
  } else {
    for (const char* key : {"cpu_jiffies", "idle_jiffies", "steal_jiffies", "interrupt_jiffies"})
      section.unknown(key, stat ? "/proc/stat has no full cpu line" : stat.reason);
  }
  const auto one = [&](const char* key, std::string_view word) {
    const auto values = find(word);
    if (values.empty())
      section.unknown(key, stat ? "/proc/stat has no such line" : stat.reason);
    else
      section.set(key, values.front());
  };
  one("context_switches", "ctxt ");
  one("running_tasks", "procs_running ");
  one("blocked_tasks", "procs_blocked ");
}

}  // namespace

nlohmann::json probe_noise(const ProbeRoot& root) {
  Section section;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  section.set("clock_s", now.count());
  for (const char* resource : {"cpu", "memory", "io"}) read_pressure(root, resource, section);
  const auto load = root.line("/proc/loadavg");
  double one_minute = 0;
  if (load && std::sscanf(load->c_str(), "%lf", &one_minute) == 1)
    section.set("load_1min", one_minute);
  else
    section.unknown("load_1min", load ? "/proc/loadavg is damaged" : load.reason);
  read_stat(root, section);
  section.set("nr_throttled", throttled_periods(root, find_cgroup(root)));
  return std::move(section).take();
}

nlohmann::json probe_noise() { return probe_noise(ProbeRoot()); }

nlohmann::json noise_between(const nlohmann::json& before, const nlohmann::json& after) {
  Section section;
  const auto seconds = grown(before, after, "clock_s");
  const auto jiffies = grown(before, after, "cpu_jiffies");
  const auto set = [&](const char* key, std::optional<double> part, std::optional<double> whole,
                       double scale) {
    if (part && whole && *whole > 0)
      section.set(key, *part * scale / *whole);
    else
      section.unknown(key, "a reading lacks the counter, or nothing was counted in between");
  };
  if (seconds)
    section.set("seconds", *seconds);
  else
    section.unknown("seconds", "a reading lacks its clock");
  set("steal_share", grown(before, after, "steal_jiffies"), jiffies, 1);
  set("interrupt_share", grown(before, after, "interrupt_jiffies"), jiffies, 1);
  if (jiffies)
    section.set("cpu_s", *jiffies / static_cast<double>(sysconf(_SC_CLK_TCK)));
  else
    section.unknown("cpu_s", "a reading lacks the counter");
  const auto idle = grown(before, after, "idle_jiffies");
  set("busy_share", idle && jiffies ? std::optional(*jiffies - *idle) : std::nullopt, jiffies, 1);
  set("context_switches_per_s", grown(before, after, "context_switches"), seconds, 1);
  constexpr double kSecondsPerMicro = 1e-6;
  set("psi_cpu_share", grown(before, after, "psi_cpu_some_total_us"), seconds, kSecondsPerMicro);
  set("psi_memory_share", grown(before, after, "psi_memory_some_total_us"), seconds,
      kSecondsPerMicro);
  set("psi_io_share", grown(before, after, "psi_io_some_total_us"), seconds, kSecondsPerMicro);
  if (const auto throttled = grown(before, after, "nr_throttled"))
    section.set("throttled_periods", *throttled);
  else
    section.unknown("throttled_periods", "a reading lacks the counter");
  return std::move(section).take();
}

}  // namespace dynamiccl
