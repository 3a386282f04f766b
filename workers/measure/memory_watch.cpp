#include "workers/measure/memory_watch.hpp"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/vocabulary/malloc_settings.hpp"
#include "profiles/detect/probes/cpu_probe.hpp"

namespace dynamiccl {
namespace {

// Above glibc's own largest threshold (32 MiB), so that its free() moves none.
constexpr std::size_t kLargeBlock = std::size_t{64} << 20;

std::string tunables_of_process() {
  const char* tunables = std::getenv(std::string(kTunablesVariable).c_str());
  return tunables == nullptr ? "" : tunables;
}

}  // namespace

std::uint64_t minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt);
}

std::int64_t huge_page_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    if (word != "AnonHugePages:") continue;
    std::int64_t kibibytes = -1;
    rollup >> kibibytes;
    return kibibytes < 0 ? -1 : kibibytes * 1024;
  }
  return -1;
}

int keeps_large_blocks() {
  const struct mallinfo2 before = mallinfo2();
  // Volatile, so that the compiler does not take the pair of calls away.
  void* volatile block = std::malloc(kLargeBlock);
  const struct mallinfo2 after = mallinfo2();
  std::free(block);
  if (after.hblks > before.hblks) return 0;
  // Neither mapped nor in the heap: another allocator has taken malloc's place.
  return after.uordblks >= before.uordblks + kLargeBlock ? 1 : -1;
}

void MemoryWatch::add_cell(const std::string& cell_id, std::uint64_t faults, std::uint64_t calls) {
  cells_[cell_id] = {{"minor_faults", faults}, {"calls", calls}};
}

nlohmann::json not_effective(const std::string& tunables, int keeps, std::int64_t huge_bytes,
                             const std::string& mode, const std::string& libc) {
  nlohmann::json reasons = nlohmann::json::object();
  const std::string keep(kKeepSetting);
  const std::string huge(kHugePagesSetting);
  const auto asked = asked_malloc_settings(tunables);
  const auto asked_for = [&](const std::string& name) {
    return std::find(asked.begin(), asked.end(), name) != asked.end();
  };
  if (asked_for(keep) && keeps != 1)
    reasons[keep] =
        keeps < 0 ? "the allocator is not glibc's and does not read its tunables (LD_PRELOAD?)"
                  : fmt::format(
                        "{} still maps a block of 64 MiB anew: thresholds above 32 MiB "
                        "need glibc 2.35",
                        libc);
  if (!asked_for(huge)) return reasons;
  if (const auto why = why_no_huge_pages(mode); !why.empty())
    reasons[huge] = why;
  else if (huge_bytes < 0)
    reasons[huge] = "not known: the kernel shows no AnonHugePages in /proc/self/smaps_rollup";
  else if (huge_bytes == 0)
    reasons[huge] = fmt::format(
        "no huge page in this process ({}; glibc.malloc.hugetlb needs "
        "glibc 2.35, blocks of 2 MiB and free memory in one piece)",
        libc);
  return reasons;
}

nlohmann::json MemoryWatch::conclude() const {
  const std::string tunables = tunables_of_process();
  const std::int64_t huge = huge_page_bytes();
  const int keeps = keeps_large_blocks();
  const auto mode = huge_page_mode(ProbeRoot());
  const std::string libc = std::string("glibc ") + gnu_get_libc_version();
  using nlohmann::json;
  return {
      {"page_bytes", sysconf(_SC_PAGESIZE)},
      {"cells", cells_},
      {"allocator",
       {{"tunables", tunables}, {"libc", libc}, {"keeps", keeps < 0 ? json() : json(keeps == 1)}}},
      {"huge_pages",
       {{"mode", mode ? json(*mode) : json()}, {"bytes", huge < 0 ? json() : json(huge)}}},
      {"not_effective", not_effective(tunables, keeps, huge, mode ? *mode : "", libc)}};
}

}  // namespace dynamiccl
