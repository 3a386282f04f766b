#include "containers/limit_mark.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/pid_namespace.hpp"

namespace dynamiccl {
namespace {

// From the top: 0, three bits that tell a mark, the owner's namespace, its number, its beginning.
constexpr unsigned kTickBits = 30;
constexpr unsigned kPidBits = 22;
constexpr unsigned kNamespaceBits = 8;
constexpr unsigned kMarkAt = kTickBits + kPidBits + kNamespaceBits;
constexpr std::uint64_t kMark = 5;

constexpr std::uint64_t low_bits(std::uint64_t value, unsigned bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

/// The limit as the kernel shows it; 0: none, or it cannot be seen.
std::uint64_t limit_of(pid_t pid) {
  const std::string text = file_text("/proc/" + std::to_string(pid) + "/limits");
  constexpr std::string_view kLine = "Max realtime timeout";
  const auto line = text.find(kLine);
  const auto digits = text.find_first_not_of(' ', line + kLine.size());
  if (line == std::string::npos || digits == std::string::npos) return 0;
  return std::strtoull(text.c_str() + digits, nullptr, 10);
}

}  // namespace

std::uint64_t own_limit_mark() {
  const ProcessMark own = own_mark();
  if (own.start_ticks == 0 || !own.pid_namespace) return 0;
  return kMark << kMarkAt | low_bits(*own.pid_namespace, kNamespaceBits) << (kTickBits + kPidBits) |
         low_bits(static_cast<std::uint64_t>(own.pid), kPidBits) << kTickBits |
         low_bits(static_cast<std::uint64_t>(own.start_ticks), kTickBits);
}

void take_limit_mark(std::uint64_t mark) noexcept {
  const rlimit limit{mark, mark};
  if (mark != 0) static_cast<void>(setrlimit(RLIMIT_RTTIME, &limit));
}

bool has_mark_of_the_dead(pid_t pid) {
  const std::uint64_t mark = limit_of(pid);
  if (mark >> kMarkAt != kMark || !sees_own_processes()) return false;
  // Nothing ends a zombie.
  if (!start_ticks_of(std::to_string(pid))) return false;
  // Of another namespace the owner's number means another process here.
  const std::uint64_t here = own_pid_namespace();
  struct stat space {};
  if (here == 0 ||
      low_bits(mark >> (kTickBits + kPidBits), kNamespaceBits) != low_bits(here, kNamespaceBits) ||
      stat(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), &space) != 0 ||
      space.st_ino != here)
    return false;
  const auto owner = static_cast<std::int64_t>(low_bits(mark >> kTickBits, kPidBits));
  if (is_hidden_process(owner)) return false;
  const auto began = start_ticks_of(std::to_string(owner));
  return !began || (*began != 0 && low_bits(static_cast<std::uint64_t>(*began), kTickBits) !=
                                       low_bits(mark, kTickBits));
}

}  // namespace dynamiccl
