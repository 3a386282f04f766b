#pragma once

#include <cstdint>
#include <limits>

namespace dynamiccl {

/// The one atomic word that ranks agree by: which table, from which call on, and whether it is
/// decided. All in one word, so that no reader ever sees the parts of two proposals.
enum class ProposalState : std::uint8_t { idle, prepared, committed, aborted };

struct Proposal {
  std::uint32_t epoch = 0;  ///< 0: nothing was ever proposed; wraps after 2^20 proposals
  ProposalState state = ProposalState::idle;
  /// Made by the ranks themselves when their communicator starts: a new one replaces it when it
  /// fails.
  bool start = false;
  std::int64_t boundary = 0;  ///< S: the number of the first call under the new table
  bool operator==(const Proposal&) const = default;
};

inline constexpr unsigned kEpochBits = 20;
inline constexpr unsigned kBoundaryBits = 41;
inline constexpr std::uint32_t kMostEpoch = (1U << kEpochBits) - 1;
inline constexpr std::int64_t kMostBoundary = (std::int64_t{1} << kBoundaryBits) - 1;

constexpr std::uint64_t pack(const Proposal& p) {
  return (std::uint64_t{p.epoch} << (64 - kEpochBits)) |
         (static_cast<std::uint64_t>(p.state) << (kBoundaryBits + 1)) |
         (std::uint64_t{p.start ? 1U : 0U} << kBoundaryBits) |
         static_cast<std::uint64_t>(p.boundary);
}
constexpr Proposal unpack(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> (64 - kEpochBits)),
          static_cast<ProposalState>((word >> (kBoundaryBits + 1)) & 3),
          ((word >> kBoundaryBits) & 1) != 0,
          static_cast<std::int64_t>(word & static_cast<std::uint64_t>(kMostBoundary))};
}
constexpr Proposal decided(Proposal p, ProposalState state) {
  p.state = state;
  return p;
}

/// What a rank has promised and uses.
struct RankView {
  std::uint32_t acked = 0;    ///< the proposal it has acknowledged and not yet settled; 0: none
  std::uint32_t settled = 0;  ///< the last proposal whose outcome it has put into effect
};

/// What a rank does next about a word that it has read, when it is about to decide call `n`
/// (-1: before its first call). Pure: the same function runs in jobs and in the model check.
enum class RankStep {
  carry_on,     ///< decide with the table in use
  acknowledge,  ///< take a copy of the table, say so, carry on
  abort,        ///< compare-and-swap to aborted, read again
  judge,        ///< commit when all ranks have acknowledged, else abort; read again
  adopt,        ///< the new table from this call on; carry on
  drop          ///< the proposal has failed: forget its table, look at the word once more
};

constexpr RankStep next_step(const Proposal& p, const RankView& rank, std::int64_t n) {
  // A newer proposal is made only after the older one was settled by all, or has failed.
  if (rank.acked != 0 && rank.acked != p.epoch) return RankStep::drop;
  if (p.epoch == 0 || p.epoch == rank.settled) return RankStep::carry_on;
  const bool acked = rank.acked == p.epoch;
  switch (p.state) {
    case ProposalState::prepared:
      if (!acked) return n < p.boundary ? RankStep::acknowledge : RankStep::abort;
      return n < p.boundary ? RankStep::carry_on : RankStep::judge;
    case ProposalState::committed:
      // It cannot be committed without this rank's word; a rank that joins late stays out.
      if (!acked || n < p.boundary) return RankStep::carry_on;
      return RankStep::adopt;
    case ProposalState::aborted:
      return acked ? RankStep::drop : RankStep::carry_on;
    case ProposalState::idle:
      break;
  }
  return RankStep::carry_on;
}

/// What replaces a start proposal that not all ranks had acknowledged at its boundary, or the same
/// one aborted when it was tried often enough.
constexpr Proposal after_failure(const Proposal& p, std::int64_t n) {
  constexpr std::uint32_t kStartTries = 8;
  if (!p.start || p.epoch >= kStartTries) return decided(p, ProposalState::aborted);
  return {p.epoch + 1, ProposalState::prepared, true, 4 * n + 16};
}

}  // namespace dynamiccl
