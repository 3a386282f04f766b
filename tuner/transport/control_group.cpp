#include "tuner/transport/control_group.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

namespace dynamiccl::transport {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
/// Version 1 says "no limit" by a number of about this size.
constexpr std::uint64_t kNoLimitV1 = std::uint64_t{1} << 60;

/// The number in a file; kUnlimited for "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  std::array<char, 32> text{};
  const bool read = std::fscanf(file, "%31s", text.data()) == 1;
  std::fclose(file);
  if (read && std::strcmp(text.data(), "max") == 0) return kUnlimited;
  std::uint64_t value = 0;
  if (!read || std::sscanf(text.data(), "%" SCNu64, &value) != 1) return std::nullopt;
  return value;
}

/// What the group's kernel would give back before it killed anybody.
std::uint64_t given_back(const std::string& path, const char* prefix) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  std::array<char, 64> name{};
  std::uint64_t value = 0;
  std::uint64_t sum = 0;
  while (std::fscanf(file, "%63s %" SCNu64, name.data(), &value) == 2)
    for (const char* part : {"inactive_file", "active_file", "slab_reclaimable"})
      if (std::string(name.data()) == std::string(prefix) + part) sum += value;
  std::fclose(file);
  return sum;
}

std::uint64_t free_swap() {
  struct sysinfo info {};
  return sysinfo(&info) == 0 ? std::uint64_t{info.freeswap} * info.mem_unit : 0;
}

std::uint64_t less(std::uint64_t from, std::uint64_t bytes) {
  return from > bytes ? from - bytes : 0;
}

/// The path that a line "ID:CONTROLLERS:PATH" of /proc/self/cgroup gives a controller, "" for
/// version 2's; "" where there is none.
std::string path_of(const std::string& root, const std::string& controller) {
  std::FILE* file = std::fopen((root + "/proc/self/cgroup").c_str(), "re");
  if (file == nullptr) return "";
  std::string found;
  std::array<char, 4352> line{};
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    std::string text = line.data();
    if (!text.empty() && text.back() == '\n') text.pop_back();
    const std::size_t first = text.find(':');
    const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + text.substr(first + 1, second - first - 1) + ",";
    if (names.find("," + controller + ",") != std::string::npos) found = text.substr(second + 1);
  }
  std::fclose(file);
  return found;
}

/// The folders of the group and of those above it, the mounted one last. A container that sees its
/// own group alone has it mounted there, whatever its path says.
std::vector<std::string> levels(const std::string& root, const std::string& mounted,
                                const std::string& controller) {
  std::vector<std::string> folders;
  std::string path = path_of(root, controller);
  for (std::size_t slash = path.size(); slash != std::string::npos && slash != 0;
       slash = path.find_last_of('/')) {
    path.resize(slash);
    if (!path.empty() && path != "/") folders.push_back(root + mounted + path);
  }
  folders.push_back(root + mounted);
  return folders;
}

std::optional<std::uint64_t> room_v2(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.max");
  const auto used = number_in(folder + "/memory.current");
  if (!limit || !used || *limit == kUnlimited) return std::nullopt;
  const std::uint64_t swap = less(number_in(folder + "/memory.swap.max").value_or(kUnlimited),
                                  number_in(folder + "/memory.swap.current").value_or(0));
  return less(*limit, less(*used, given_back(folder + "/memory.stat", ""))) +
         std::min(swap, free_swap());
}

std::optional<std::uint64_t> room_v1(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.limit_in_bytes");
  const auto used = number_in(folder + "/memory.usage_in_bytes");
  if (!limit || !used || *limit >= kNoLimitV1) return std::nullopt;
  const std::uint64_t held = given_back(folder + "/memory.stat", "total_");
  // memsw counts memory and swap space together.
  const std::uint64_t both =
      less(number_in(folder + "/memory.memsw.limit_in_bytes").value_or(kUnlimited),
           less(number_in(folder + "/memory.memsw.usage_in_bytes").value_or(*used), held));
  return std::min(less(*limit, less(*used, held)) + free_swap(), both);
}

/// Cores of "QUOTA PERIOD" in microseconds; nullopt: no limit.
std::optional<double> quota_v2(const std::string& folder) {
  std::FILE* file = std::fopen((folder + "/cpu.max").c_str(), "re");
  if (file == nullptr) return std::nullopt;
  double quota = 0;
  double period = 0;
  const int read = std::fscanf(file, "%lf %lf", &quota, &period);  // "max" is no number
  std::fclose(file);
  if (read != 2 || !(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const std::string& folder) {
  const auto quota = number_in(folder + "/cpu.cfs_quota_us");  // -1 wraps: beyond any quota
  const auto period = number_in(folder + "/cpu.cfs_period_us");
  if (!quota || !period || *quota >= kNoLimitV1 || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

template <typename Value>
void take_least(std::optional<Value>& least, std::optional<Value> value) {
  if (value && (!least || *value < *least)) least = value;
}

}  // namespace

std::optional<std::uint64_t> memory_room(const std::string& root) {
  std::optional<std::uint64_t> room;
  for (const std::string& folder : levels(root, "/sys/fs/cgroup", ""))
    take_least(room, room_v2(folder));
  for (const std::string& folder : levels(root, "/sys/fs/cgroup/memory", "memory"))
    take_least(room, room_v1(folder));
  return room;
}

unsigned quota_cores(const std::string& root) {
  std::optional<double> cores;
  for (const std::string& folder : levels(root, "/sys/fs/cgroup", ""))
    take_least(cores, quota_v2(folder));
  for (const std::string& folder : levels(root, "/sys/fs/cgroup/cpu", "cpu"))
    take_least(cores, quota_v1(folder));
  return cores ? static_cast<unsigned>(std::clamp(*cores, 1.0, 1e6)) : 0;
}

}  // namespace dynamiccl::transport
