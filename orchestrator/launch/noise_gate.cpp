#include "orchestrator/launch/noise_gate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "orchestrator/launch/interrupt.hpp"
#include "profiles/detect/noise.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

constexpr auto kWindow = std::chrono::milliseconds(100);

std::optional<double> number(const json& reading, const char* key) {
  if (!reading.is_object()) return std::nullopt;
  const auto found = reading.find(key);
  if (found == reading.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

class Flags {
 public:
  /// What is unknown breaks no limit: that it is unknown is recorded with its reason.
  void share(const json& reading, const char* key, double limit, const char* what) {
    const auto value = number(reading, key);
    if (value && *value > limit)
      sentences.push_back(
          fmt::format("{}: {:.0f} % (limit {:.0f} %)", what, *value * 100, limit * 100));
  }
  void count(const json& reading, const char* key, double limit, const char* what) {
    const auto value = number(reading, key);
    if (value && *value > limit)
      sentences.push_back(fmt::format("{}: {:g} (limit {:g})", what, *value, limit));
  }
  std::vector<std::string> sentences;
};

void judge_before(const json& before, const NoiseLimits& limits, int cores, Flags& flags) {
  const json& window = before.is_object() && before.contains("window") ? before["window"] : before;
  flags.share(window, "busy_share", limits.busy, "others used the CPUs before the launch");
  flags.share(window, "steal_share", limits.steal, "CPU time stolen before the launch");
  flags.share(window, "psi_cpu_share", limits.psi_cpu, "tasks waited for a CPU before the launch");
  flags.share(window, "psi_memory_share", limits.psi_memory,
              "tasks waited for memory before the launch");
  flags.share(window, "psi_io_share", limits.psi_io, "tasks waited for disks before the launch");
  flags.count(window, "other_running_tasks", limits.load * cores,
              "others' runnable tasks before the launch");
}

/// The machine's CPU time over the cells that neither the ranks nor interrupts used.
std::optional<double> used_by_others(const std::vector<json>& of_ranks) {
  double own_s = 0;
  for (const auto& rank : of_ranks) {
    const auto mine = number(rank, "own_cpu_s");
    if (!mine) return std::nullopt;
    own_s += *mine;
  }
  if (of_ranks.empty()) return std::nullopt;
  const auto busy = number(of_ranks.front(), "busy_share");
  const auto all_s = number(of_ranks.front(), "cpu_s");
  if (!busy || !all_s || *all_s <= 0) return std::nullopt;
  const double interrupts = number(of_ranks.front(), "interrupt_share").value_or(0);
  return std::max(0.0, *busy - interrupts - own_s / *all_s);
}

void judge_during(const json& during, const std::vector<json>& of_ranks, const NoiseLimits& limits,
                  Flags& flags) {
  if (const auto others = used_by_others(of_ranks))
    flags.share({{"others", *others}}, "others", limits.busy, "others used the CPUs meanwhile");
  flags.share(during, "steal_share", limits.steal, "CPU time stolen meanwhile");
  flags.share(during, "psi_memory_share", limits.psi_memory, "tasks waited for memory meanwhile");
  flags.share(during, "psi_io_share", limits.psi_io, "tasks waited for disks meanwhile");
  json throttled = json::object();
  double most = number(during, "throttled_periods").value_or(0);
  for (const auto& rank : of_ranks)
    most = std::max(most, number(rank, "throttled_periods").value_or(0));
  throttled["periods"] = most;
  flags.count(throttled, "periods", limits.throttled, "periods throttled by a control group");
  double held_back = 0;
  for (const auto& rank : of_ranks)
    held_back = std::max(held_back, number(rank, "gpu_capped_share").value_or(0));
  flags.share({{"gpu", held_back}}, "gpu", limits.gpu_capped,
              "a GPU's clocks held back by heat or power");
}

/// Of the cell in which it was held back most; nullopt where no cell tells.
std::optional<double> gpu_capped_share(const json& details) {
  std::optional<double> most;
  const auto cells = details.find("gpu");
  if (cells == details.end() || !cells->is_object()) return most;
  for (const auto& reading : *cells)
    for (const char* key : {"thermally_capped_share", "power_capped_share"})
      if (const auto share = number(reading, key)) most = std::max(most.value_or(0), *share);
  return most;
}

json window_now() {
  const json first = probe_noise();
  std::this_thread::sleep_for(kWindow);
  json second = probe_noise();
  second["window"] = noise_between(first, second);
  const auto before = number(first, "running_tasks");
  const auto after = number(second, "running_tasks");
  // Each reading counts this process; the smaller one leaves out what ran for a moment only.
  if (before && after)
    second["window"]["other_running_tasks"] = std::max(0.0, std::min(*before, *after) - 1);
  return second;
}

}  // namespace

json quiet_window(const NoiseLimits& limits, int cores) {
  const auto began = std::chrono::steady_clock::now();
  while (true) {
    json reading = window_now();
    Flags flags;
    judge_before(reading, limits, cores, flags);
    const std::chrono::duration<double, std::micro> waited =
        std::chrono::steady_clock::now() - began;
    if (flags.sentences.empty() || interrupted() || waited.count() >= limits.wait.count()) {
      reading["window"]["waited_s"] = waited.count() * 1e-6;
      return reading;
    }
  }
}

std::vector<std::string> wait_for_quiet(const NoiseLimits& limits, int cores, Micros most,
                                        const std::function<json()>& window) {
  constexpr int kQuietWindows = 10;
  const auto began = std::chrono::steady_clock::now();
  int quiet = 0;
  while (true) {
    Flags flags;
    judge_before(window(), limits, cores, flags);
    quiet = flags.sentences.empty() ? quiet + 1 : 0;
    const std::chrono::duration<double, std::micro> waited =
        std::chrono::steady_clock::now() - began;
    if (quiet == kQuietWindows || interrupted() || waited.count() >= most.count())
      return flags.sentences;
  }
}

std::vector<std::string> wait_for_quiet(const NoiseLimits& limits, int cores, Micros most) {
  return wait_for_quiet(limits, cores, most, window_now);
}

std::vector<std::string> noise_flags(const json& before, const json& during,
                                     const std::vector<json>& of_ranks, const NoiseLimits& limits,
                                     int cores) {
  Flags flags;
  judge_before(before, limits, cores, flags);
  judge_during(during, of_ranks, limits, flags);
  return flags.sentences;
}

std::vector<json> noise_of_ranks(const std::vector<RecordFile>& files) {
  std::vector<json> readings;
  for (const auto& file : files) {
    for (const auto& record : file.records) {
      const auto* transport = std::get_if<TransportRecord>(&record);
      if (transport == nullptr || !transport->details.contains("noise")) continue;
      readings.push_back(transport->details["noise"]);
      if (const auto share = gpu_capped_share(transport->details))
        readings.back()["gpu_capped_share"] = *share;
    }
  }
  return readings;
}

}  // namespace dynamiccl
