#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "plugin/agreement/call_table.hpp"

namespace dynamiccl::nccl_tuner {

/// What the program that NCCL runs in asks of its own calls: a trainer that chooses step by step,
/// alike on all ranks, needs neither a folder nor a leader for it. In force from the next call on,
/// before any table. One per process; nothing throws.
class ProgramChoice {
 public:
  static ProgramChoice& instance() noexcept;

  /// From now on the program chooses, and what NCCL has not ruled out is noted; or tables do again.
  void take_over(bool on) noexcept { taken_.store(on, std::memory_order_relaxed); }
  [[nodiscard]] bool taken() const noexcept { return taken_.load(std::memory_order_relaxed); }
  /// Of this collective's calls; others are NCCL's.
  void set(std::size_t function, CallCell cell) noexcept;
  [[nodiscard]] CallCell cell(std::size_t function) const noexcept;
  void note_costs(std::size_t function, const float* costs, int algorithms, int protocols) noexcept;
  /// Bit `algorithm * 3 + protocol`: some call could have run so. 0: none was made yet.
  [[nodiscard]] std::uint32_t possible(std::size_t function) const noexcept {
    return possible_[function].load(std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> taken_{false};
  /// By collective, in one word: algorithm and protocol, each one more and 0 for any, channels.
  std::array<std::atomic<std::uint32_t>, kCallFunctions> cells_{};
  std::array<std::atomic<std::uint32_t>, kCallFunctions> possible_{};
};

}  // namespace dynamiccl::nccl_tuner

// For the program that has loaded the plugin, by dlsym(); C, as it has another C++ library.
extern "C" {
/// The program chooses from now on (1), or no more (0); until it has chosen, NCCL does.
void dynamiccl_tuner_take_over(int on);
/// The collective's calls that follow.
/// @param function as NCCL counts them; 4: all-reduce
/// @param algorithm, protocol by name ("ring", "LL128"); "" leaves that to NCCL
/// @param channels cap; 0: NCCL's own
/// @returns 0 when something is not known, and nothing has changed
int dynamiccl_tuner_choose(int function, const char* algorithm, const char* protocol, int channels);
/// ProgramChoice::possible().
std::uint32_t dynamiccl_tuner_possible(int function);
}
