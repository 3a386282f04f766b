#include "tuner/transport/control_group.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include "profiles/detect/probes/control_group.hpp"

namespace dynamiccl::transport {
namespace {

constexpr std::uint64_t kNoLimit{kNoGroupLimit};
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

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

std::string text_of(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return "";
  std::array<char, 16384> text{};
  const std::size_t size = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  return {text.data(), size};
}

/// The folders of the groups that this process is in for a controller, "" for version 2's.
std::vector<std::string> levels(const std::string& root, const std::string& mounted,
                                const std::string& controller) {
  const auto path = group_path_in(text_of(root + "/proc/self/cgroup"), controller);
  return group_folders(root + mounted, path.value_or(""));
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
  if (!limit || !used || *limit >= kNoLimit) return std::nullopt;
  const std::uint64_t held = given_back(folder + "/memory.stat", "total_");
  // memsw counts memory and swap space together.
  const std::uint64_t both =
      less(number_in(folder + "/memory.memsw.limit_in_bytes").value_or(kUnlimited),
           less(number_in(folder + "/memory.memsw.usage_in_bytes").value_or(*used), held));
  return std::min(less(*limit, less(*used, held)) + free_swap(), both);
}

std::optional<double> quota_v1(const std::string& folder) {
  const auto number = [&](const char* file) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const std::string text = text_of(folder + file);
    return std::sscanf(text.c_str(), "%" SCNd64, &value) == 1 ? std::optional(value) : std::nullopt;
  };
  return quota_cores_of(number("/cpu.cfs_quota_us"), number("/cpu.cfs_period_us"));
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
    take_least(cores, quota_cores_in(text_of(folder + "/cpu.max")));
  for (const std::string& folder : levels(root, "/sys/fs/cgroup/cpu", "cpu"))
    take_least(cores, quota_v1(folder));
  return cores ? static_cast<unsigned>(std::clamp(*cores, 1.0, 1e6)) : 0;
}

}  // namespace dynamiccl::transport
