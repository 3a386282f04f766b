#include "plugin/agreement/member.hpp"

#include <algorithm>

namespace dynamiccl {

ControlPause g_control_pause = nullptr;

namespace {

void pause_at(const char* where) {
  if (g_control_pause != nullptr) g_control_pause(where);
}

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

}  // namespace

Member::Member(std::shared_ptr<Region> region) : region_(std::move(region)) {
  // No call of any size has connected anything yet.
  for (std::atomic<std::uint64_t>& sizes : changed_) sizes = ~std::uint64_t{0};
  slot_ = region_->claim();
  if (slot_ == nullptr) return;
  header_ = &region_->header();
  settle(-1);
}

Member::~Member() {
  if (slot_ != nullptr) slot_->gone.store(1, std::memory_order_release);
}

void Member::adopt(const Proposal& proposal) noexcept {
  for (std::size_t f = 0; f < kCallFunctions; ++f) {
    std::uint64_t changed = 0;
    for (std::size_t b = 0; b < kCallBins; ++b)
      changed |= std::uint64_t{!(current_.cells[f][b] == next_.cells[f][b])} << b;
    if (changed != 0) changed_[f].fetch_or(changed, std::memory_order_relaxed);
  }
  current_ = next_;
  view_ = {0, proposal.epoch};
  epoch_.store(proposal.epoch, std::memory_order_relaxed);
  slot_->settled.store(proposal.epoch, std::memory_order_release);
}

void Member::settle(std::int64_t n) noexcept {
  for (;;) {
    std::uint64_t word = header_->word.load(std::memory_order_acquire);
    const Proposal p = unpack(word);
    RankStep step = next_step(p, view_, n);
    pause_at("step");
    // A torn table is as good as none.
    if (step == RankStep::acknowledge && !region_->copy_table(p, next_)) step = RankStep::abort;
    switch (step) {
      case RankStep::carry_on:
        seen_ = word;
        look_again_at_ = view_.acked != 0 ? p.boundary : kNever;
        return;
      case RankStep::acknowledge:
        pause_at("acknowledge");
        view_.acked = p.epoch;
        slot_->acked.store(p.epoch, std::memory_order_release);
        break;
      case RankStep::abort:
      case RankStep::judge: {
        const bool commit = step == RankStep::judge && region_->all_acked(p.epoch);
        const Proposal verdict =
            commit ? decided(p, ProposalState::committed) : after_failure(p, n);
        pause_at("verdict");
        if (header_->word.compare_exchange_strong(word, pack(verdict)))
          (commit ? header_->committed : header_->aborted).fetch_add(1, std::memory_order_relaxed);
        break;
      }
      case RankStep::adopt:
        adopt(p);
        break;
      case RankStep::drop:
        view_ = {0, view_.acked};
        slot_->settled.store(view_.settled, std::memory_order_release);
        break;
    }
  }
}

void Member::record(std::size_t function, std::size_t bin, std::uint32_t epoch,
                    std::uint64_t nanoseconds) noexcept {
  if (slot_ == nullptr || function >= kCallFunctions || bin >= kCallBins) return;
  CellSummary& cell = slot_->summaries[function][bin];
  if (cell.epoch.load(std::memory_order_relaxed) != epoch) {
    cell.count.store(0, std::memory_order_relaxed);
    cell.sum_ns.store(0, std::memory_order_relaxed);
    cell.least_ns.store(std::numeric_limits<std::uint64_t>::max(), std::memory_order_relaxed);
    cell.epoch.store(epoch, std::memory_order_release);
    // The first call under a new setting may have connected channels: it only opens the sum. Where
    // only other sizes' settings are new, every call counts.
    const std::uint64_t bit = std::uint64_t{1} << bin;
    if ((changed_[function].fetch_and(~bit, std::memory_order_relaxed) & bit) != 0) return;
  }
  cell.sum_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
  std::uint64_t least = cell.least_ns.load(std::memory_order_relaxed);
  while (nanoseconds < least &&
         !cell.least_ns.compare_exchange_weak(least, nanoseconds, std::memory_order_relaxed)) {
  }
  cell.count.fetch_add(1, std::memory_order_release);
}

}  // namespace dynamiccl
