#include "plugin/agreement/leader.hpp"

#include <algorithm>
#include <limits>

#include "core/vocabulary/error.hpp"
#include "plugin/agreement/folder_files.hpp"

namespace dynamiccl {

namespace {

bool all_ranks_gone(const Region& region) {
  for (std::size_t i = 0; i < region.ranks(); ++i)
    if (region.slot(i).gone.load(std::memory_order_acquire) == 0) return false;
  return true;
}

}  // namespace

Leader::Leader(std::shared_ptr<Region> region) : region_(std::move(region)) {
  if (!region_->lock_leadership())
    throw Error(ErrorKind::environment,
                "another leader holds this communicator: end it first, or give this one another "
                "folder");
  // What a leader that died has left undecided: its table may be torn, and nobody waits for it.
  std::uint64_t seen = word();
  const Proposal p = unpack(seen);
  if (p.state == ProposalState::prepared && !p.start)
    region_->header().word.compare_exchange_strong(seen, pack(decided(p, ProposalState::aborted)));
}

Leader::Progress Leader::poll() {
  if (all_ranks_gone(*region_)) return Progress::ended;
  std::uint64_t seen = word();
  const Proposal p = unpack(seen);
  if (p.state == ProposalState::prepared) {
    if (!region_->all_acked(p.epoch)) return Progress::open;
    if (region_->header().word.compare_exchange_strong(seen,
                                                       pack(decided(p, ProposalState::committed))))
      region_->header().committed.fetch_add(1, std::memory_order_relaxed);
    return poll();
  }
  if (p.state == ProposalState::committed) {
    for (std::size_t i = 0; i < region_->ranks(); ++i)
      if (region_->slot(i).settled.load(std::memory_order_acquire) != p.epoch)
        return Progress::settling;
  }
  return p.epoch >= kMostEpoch ? Progress::ended : Progress::free;
}

std::uint32_t Leader::write_table(const CallTable& table) {
  const Proposal p = proposal();
  DYN_ASSERT(p.state != ProposalState::prepared, "a proposal is open: poll() first");
  region_->publish(table, p.epoch + 1);
  return p.epoch + 1;
}

void Leader::announce(std::uint32_t epoch, std::int64_t ahead) {
  const std::int64_t boundary =
      std::min(furthest_call() + std::max<std::int64_t>(ahead, 1), kMostBoundary);
  region_->header().word.store(pack({epoch, ProposalState::prepared, false, boundary}),
                               std::memory_order_release);
}

void Leader::propose(const CallTable& table, std::int64_t ahead) {
  announce(write_table(table), ahead);
}

bool Leader::committed() const { return proposal().state == ProposalState::committed; }

std::int64_t Leader::furthest_call() const {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < region_->ranks(); ++i)
    most = std::max(most, region_->slot(i).calls.load(std::memory_order_relaxed));
  return most;
}

std::int64_t Leader::spread() const {
  std::int64_t least = kMostBoundary;
  for (std::size_t i = 0; i < region_->ranks(); ++i)
    least = std::min(least, region_->slot(i).calls.load(std::memory_order_relaxed));
  return std::max<std::int64_t>(furthest_call() - least, 0);
}

CellObservation Leader::observe(std::size_t function, std::size_t bin) const {
  // An aborted proposal leaves the ranks with an older epoch: what they say themselves counts.
  const std::uint32_t epoch =
      region_->slot(0).summaries[function][bin].epoch.load(std::memory_order_acquire);
  CellObservation seen{std::numeric_limits<std::uint32_t>::max(), Micros{}, epoch, Micros{}};
  for (std::size_t i = 0; i < region_->ranks(); ++i) {
    const CellSummary& cell = region_->slot(i).summaries[function][bin];
    const std::uint32_t count = cell.count.load(std::memory_order_acquire);
    if (cell.epoch.load(std::memory_order_acquire) != epoch || count == 0) return {};
    const Micros mean(static_cast<double>(cell.sum_ns.load()) / 1e3 / count);
    const Micros least(static_cast<double>(cell.least_ns.load()) / 1e3);
    seen.mean = std::max(seen.mean, mean);
    seen.least = i == 0 ? least : std::min(seen.least, least);
    seen.calls = std::min(seen.calls, count);
  }
  return seen;
}

std::vector<std::string> regions_in(const std::string& folder) {
  return files_in(folder, "comm-", ".region");
}

}  // namespace dynamiccl
