#pragma once

#include <string>

#include "core/wire/standing.hpp"

namespace dynamiccl {

/// Maps this rank's file in the launch's folder, once; where that cannot be, what it stands at is
/// reported to nobody, which is no reason not to measure.
void open_standing(const std::string& output_dir, int rank);
/// This process's, to be written by the thread that measures.
Standing& own_standing();

inline void stand_at(Standpoint point, std::uint64_t round) {
  Standing& own = own_standing();
  own.point.store(point, std::memory_order_relaxed);
  own.round.store(round, std::memory_order_relaxed);
}
/// In the round where it is.
/// A training cell: what comes after it is no part of it.
struct StandingOfCell {
  StandingOfCell() { stand_at(Standpoint::profile, 0); }
  ~StandingOfCell() { stand_at(Standpoint::nothing, 0); }
  StandingOfCell(const StandingOfCell&) = delete;
  StandingOfCell& operator=(const StandingOfCell&) = delete;
};

inline void stand_at(Standpoint point) {
  own_standing().point.store(point, std::memory_order_relaxed);
}
/// Of the next round.
inline void stand_at_next(Standpoint point) {
  stand_at(point, own_standing().round.load(std::memory_order_relaxed) + 1);
}

}  // namespace dynamiccl
