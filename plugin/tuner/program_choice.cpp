#include "plugin/tuner/program_choice.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

namespace dynamiccl::nccl_tuner {
namespace {

constexpr int kMostChannels = 64;

std::uint32_t packed(std::uint8_t value) noexcept {
  return value == CallCell::kAny ? 0U : value + 1U;
}

std::uint8_t unpacked(std::uint32_t value) noexcept {
  return value == 0 ? CallCell::kAny : static_cast<std::uint8_t>(value - 1);
}

/// Place of the name; kAny for an empty one, nothing for one that is not there.
template <std::size_t n>
std::optional<std::uint8_t> place_of(const std::array<std::string_view, n>& names,
                                     const char* name) noexcept {
  if (name == nullptr || *name == '\0') return CallCell::kAny;
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::uint8_t>(found - names.begin());
}

bool is_function(int function) noexcept {
  return function >= 0 && function < static_cast<int>(kCallFunctions);
}

}  // namespace

ProgramChoice& ProgramChoice::instance() noexcept {
  // Without a destructor: NCCL's threads may outlive static ones.
  static ProgramChoice choice;
  return choice;
}

void ProgramChoice::set(std::size_t function, CallCell cell) noexcept {
  cells_[function].store(packed(cell.algorithm) << 16 | packed(cell.protocol) << 8 | cell.channels,
                         std::memory_order_relaxed);
}

CallCell ProgramChoice::cell(std::size_t function) const noexcept {
  const std::uint32_t all = cells_[function].load(std::memory_order_relaxed);
  return {unpacked(all >> 16 & 0xff), unpacked(all >> 8 & 0xff),
          static_cast<std::uint8_t>(all & 0xff), 0};
}

void ProgramChoice::note_costs(std::size_t function, const float* costs, int algorithms,
                               int protocols) noexcept {
  constexpr int kProtocols = static_cast<int>(kCallProtocolNames.size());
  const int known = std::min(algorithms, static_cast<int>(kCallAlgorithmNames.size()));
  std::uint32_t found = 0;
  for (int a = 0; a < known; ++a)
    for (int p = 0; p < std::min(protocols, kProtocols); ++p)
      if (costs[a * protocols + p] >= 0.0F) found |= 1U << (a * kProtocols + p);
  possible_[function].fetch_or(found, std::memory_order_relaxed);
}

}  // namespace dynamiccl::nccl_tuner

using dynamiccl::nccl_tuner::ProgramChoice;

extern "C" {
__attribute__((visibility("default"))) void dynamiccl_tuner_take_over(int on) {
  ProgramChoice::instance().take_over(on != 0);
}

__attribute__((visibility("default"))) int dynamiccl_tuner_choose(int function,
                                                                  const char* algorithm,
                                                                  const char* protocol,
                                                                  int channels) {
  using namespace dynamiccl;
  const auto a = nccl_tuner::place_of(kCallAlgorithmNames, algorithm);
  const auto p = nccl_tuner::place_of(kCallProtocolNames, protocol);
  if (!nccl_tuner::is_function(function) || !a || !p || channels < 0 ||
      channels > nccl_tuner::kMostChannels)
    return 0;
  ProgramChoice::instance().set(static_cast<std::size_t>(function),
                                {*a, *p, static_cast<std::uint8_t>(channels), 0});
  return 1;
}

__attribute__((visibility("default"))) std::uint32_t dynamiccl_tuner_possible(int function) {
  if (!dynamiccl::nccl_tuner::is_function(function)) return 0;
  return ProgramChoice::instance().possible(static_cast<std::size_t>(function));
}
}
