#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace dynamiccl {

/// What a rank is at while it trains.
enum class Standpoint : std::uint32_t {
  nothing,     ///< it has not begun to train, or measures something else
  profile,     ///< it learns what model and messages cost, and chooses a plan
  step,        ///< it computes, and exchanges where that is part of the step
  exchange,    ///< it has computed its part, and sends and waits for what others send
  gradients,   ///< a server: it waits for workers' gradients
  evaluation,  ///< it takes the accuracy, or waits until others have
  comparison   ///< it has trained; ranks compare their weights
};

/// Where a rank stands: in a file of the launch's folder that it maps and writes without a system
/// call, so that others can say it of a process that was stopped.
struct Standing {
  static constexpr std::uint32_t kMagic = 0x44594e53;
  std::uint32_t magic = kMagic;
  std::atomic<Standpoint> point{Standpoint::nothing};
  std::atomic<std::uint32_t> checked{0};  ///< 1: its steps are those compared with one process
  std::atomic<std::uint64_t> round{0};    ///< that it is in, counted from 1; 0: none
};
static_assert(sizeof(Standing) == 24);

std::string standing_file_name(int rank);
/// "in the exchange of round 17"; "" where the bytes are no Standing, or it says nothing.
std::string words_of_standing(const std::string& bytes);

}  // namespace dynamiccl
