#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "plugin/agreement/agreement.hpp"
#include "plugin/agreement/call_table.hpp"

namespace dynamiccl {

/// The host's clock that beats in a region are taken from: the same for all of its processes.
std::int64_t monotonic_ns();

/// Layout of the file that the ranks of one communicator on one host and their leader map. Only
/// lock-free atomics: processes that share it may be stopped or killed anywhere.
inline constexpr std::uint64_t kRegionMagic = 0x44594e434f4c4c31ULL;
inline constexpr std::uint32_t kRegionVersion = 2;

struct CellSummary {
  std::atomic<std::uint32_t> epoch;  ///< of the table that the calls ran under
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint64_t> sum_ns;
  std::atomic<std::uint64_t> least_ns;
};

/// What one rank tells. Written by that rank alone.
struct alignas(64) RankSlot {
  std::atomic<std::int64_t> calls;  ///< decided so far
  std::atomic<std::uint32_t> acked;
  std::atomic<std::uint32_t> settled;
  std::atomic<std::uint32_t> gone;    ///< 1: its communicator was destroyed
  std::atomic<std::uint64_t> masked;  ///< calls whose setting the library does not have
  alignas(64) std::array<std::array<CellSummary, kCallBins>, kCallFunctions> summaries;
};

struct PublishedTable {
  std::uint64_t checksum;
  std::uint32_t epoch;  ///< 0: the start table, which every start proposal means
  std::uint32_t reserved;
  CallTable table;
};

struct RegionHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t ranks;
  std::uint64_t communicator;
  std::uint32_t nodes;
  std::uint32_t reserved;
  std::uint64_t host;  ///< whose kernel keeps the mapping one for all: others see what they want
  alignas(64) std::atomic<std::uint64_t> word;
  alignas(64) std::atomic<std::uint32_t> claimed;  ///< slots given out
  std::atomic<std::uint32_t> committed;            ///< proposals, for people
  std::atomic<std::uint32_t> aborted;
  alignas(64) std::array<PublishedTable, 2> tables;  ///< by the epoch's last bit
};

/// One communicator's file "FOLDER/comm-HEX.region", mapped. Made whole next to its name and then
/// linked to it, so that nobody ever maps half a file.
class Region {
 public:
  struct Spec {
    std::uint64_t communicator = 0;
    unsigned ranks = 1;
    unsigned nodes = 1;
    /// Proposed for the first call; nullptr: the library alone until a leader comes.
    const CallTable* start = nullptr;
  };
  /// Opens the communicator's region, or makes it. Never throws.
  /// @returns nullptr with `problem` set when the folder cannot be used, or ranks of another host
  /// have made the region: a file that two kernels map is not one memory
  static std::unique_ptr<Region> open_or_make(const std::string& folder, const Spec& spec,
                                              std::string& problem) noexcept;
  /// @returns nullptr with `problem` set when the file is no whole region
  static std::unique_ptr<Region> open(const std::string& path, std::string& problem) noexcept;
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] RegionHeader& header() const { return *static_cast<RegionHeader*>(memory_); }
  [[nodiscard]] RankSlot& slot(std::size_t index) const;
  /// As the file said when it was mapped: what anyone writes there later moves no slot.
  [[nodiscard]] std::size_t ranks() const { return ranks_; }
  /// nullptr: all slots are given out.
  [[nodiscard]] RankSlot* claim() const;
  [[nodiscard]] bool all_acked(std::uint32_t epoch) const;
  /// Only where no proposal is open (see Leader).
  void publish(const CallTable& table, std::uint32_t epoch) const;
  /// @returns false for a torn table, one of another epoch or with settings that no table has
  bool copy_table(const Proposal& proposal, CallTable& to) const;

  /// True for one process at a time; freed by the kernel when the process ends.
  [[nodiscard]] bool lock_leadership() const;
  static std::string path_of(const std::string& folder, std::uint64_t communicator);

 private:
  Region(void* memory, std::size_t bytes, int file) : memory_(memory), bytes_(bytes), file_(file) {}
  static std::unique_ptr<Region> map(int file, std::string& problem) noexcept;
  void* memory_;
  std::size_t bytes_;
  int file_;
  std::size_t ranks_ = 0;
};

}  // namespace dynamiccl
