#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "plugin/agreement/region.hpp"

namespace dynamiccl {

/// What the ranks have measured of one function and size under the table in use.
struct CellObservation {
  std::uint32_t calls = 0;  ///< of the rank with the fewest
  Micros mean;              ///< of the slowest rank: late ranks cost the others time
  std::uint32_t epoch = 0;  ///< of the table that they ran under
  Micros least;             ///< of the fastest rank: what the call takes when nobody is late
};

/// Proposes tables to the ranks of one communicator on one host, without ever holding them up.
/// One leader at a time; when it dies the ranks keep the last committed table, and the next one
/// carries on.
class Leader {
 public:
  enum class Progress {
    free,      ///< no proposal is open: propose() may be called
    open,      ///< prepared, undecided
    settling,  ///< committed, and some rank has not reached the boundary yet
    ended      ///< all ranks have left, or no further table can be numbered
  };
  /// @throws Error(environment) when another leader holds the region
  explicit Leader(std::shared_ptr<Region> region);

  /// Looks at the ranks, decides what can be decided. Cheap; call it as often as wanted.
  Progress poll();
  /// Prepares `table` for a boundary that the ranks have not reached.
  /// @param ahead calls between the furthest rank and the boundary
  /// @throws Error(bug) unless poll() said free
  void propose(const CallTable& table, std::int64_t ahead);
  /// propose() in its two halves, so that a test can stop in between.
  std::uint32_t write_table(const CallTable& table);
  void announce(std::uint32_t epoch, std::int64_t ahead);
  /// An outcome of the proposal made last; only after poll() no longer says open.
  [[nodiscard]] bool committed() const;
  /// Calls between the furthest rank and the one behind most.
  [[nodiscard]] std::int64_t spread() const;
  [[nodiscard]] std::int64_t furthest_call() const;
  [[nodiscard]] CellObservation observe(std::size_t function, std::size_t bin) const;
  /// What the ranks were sent last.
  [[nodiscard]] Proposal proposal() const { return unpack(word()); }
  [[nodiscard]] const Region& region() const { return *region_; }

 private:
  [[nodiscard]] std::uint64_t word() const {
    return region_->header().word.load(std::memory_order_acquire);
  }
  std::shared_ptr<Region> region_;
};

/// Regions that lie in a folder: communicators that are there to be led.
std::vector<std::string> regions_in(const std::string& folder);

}  // namespace dynamiccl
