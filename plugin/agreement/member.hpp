#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "plugin/agreement/region.hpp"

namespace dynamiccl {

/// Called before every step of the agreement that others can see, never on the fast path; nullptr
/// outside tests, which delay and stop processes there.
using ControlPause = void (*)(const char* where);
extern ControlPause g_control_pause;

/// One rank's end of the agreement. decide() belongs to one thread at a time; record() may be
/// called by any. Nothing throws after the constructor.
class Member {
 public:
  /// Alone: the table stays as it is.
  explicit Member(const CallTable& table) : current_(table) {}
  /// With the others that map the region. Acknowledges a proposal that is already there.
  explicit Member(std::shared_ptr<Region> region);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  /// The setting of the next call. Nanoseconds while nothing changes; never waits.
  CallCell decide(std::size_t function, std::size_t bin) noexcept {
    const std::int64_t n = calls_++;
    if (slot_ != nullptr) {
      slot_->calls.store(n + 1, std::memory_order_relaxed);
      const std::uint64_t word = header_->word.load(std::memory_order_acquire);
      if (word != seen_ || n >= look_again_at_) settle(n);
    }
    return current_.cells[function][bin];
  }
  /// Of the table in use; calls are summed up under it.
  [[nodiscard]] std::uint32_t epoch() const { return epoch_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t calls() const { return calls_; }
  [[nodiscard]] bool shared() const { return slot_ != nullptr; }
  /// One call took so long on this rank's GPU, under the table of `epoch`.
  void record(std::size_t function, std::size_t bin, std::uint32_t epoch,
              std::uint64_t nanoseconds) noexcept;
  void count_masked() noexcept {
    if (slot_ != nullptr) slot_->masked.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  void settle(std::int64_t n) noexcept;
  void adopt(const Proposal& proposal) noexcept;

  CallTable current_{};
  CallTable next_{};
  std::int64_t calls_ = 0;
  std::uint64_t seen_ = 0;
  std::int64_t look_again_at_ = std::numeric_limits<std::int64_t>::max();
  RegionHeader* header_ = nullptr;
  RankSlot* slot_ = nullptr;
  RankView view_;
  std::atomic<std::uint32_t> epoch_{0};
  /// By function, a bit per size: its setting has changed since a call of it was summed up.
  std::array<std::atomic<std::uint64_t>, kCallFunctions> changed_{};
  std::shared_ptr<Region> region_;
};

}  // namespace dynamiccl
