#include "tuner/transport/memory_room.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <limits>

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
  // memsw counts memory and swap space together.
  const std::uint64_t swap =
      less(number_in(folder + "/memory.memsw.limit_in_bytes").value_or(kUnlimited), *limit);
  return less(*limit, less(*used, given_back(folder + "/memory.stat", "total_"))) +
         std::min(swap, free_swap());
}

}  // namespace

std::optional<std::uint64_t> memory_room(const std::string& folder) {
  const auto room = room_v2(folder);
  return room ? room : room_v1(folder + "/memory");
}

}  // namespace dynamiccl::transport
