#pragma once

#include <cstddef>
#include <vector>

#include "train/plan/exchange_plan.hpp"

namespace dynamiccl {

/// What of a piece one lane of the library's queue carries. Elements of the flat buffer.
struct Stripe {
  std::size_t lane = 0;
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// Most that are tried: the buffers of each take some hundred MiB.
inline constexpr std::size_t kMostLanes = 8;

/// How many lanes may be tried, a power of two: every rank's lane has threads of the library (NCCL
/// over sockets) that must leave half of the cores to what else computes.
/// @param ranks on all hosts
/// @param cores of the host, the fewest of any
std::size_t most_lanes(int ranks, int cores);

/// Most elements of a piece that goes whole to one lane: a MiB per lane. Larger ones go over all
/// lanes, as a lane's start-up costs them little and one lane alone would keep the others waiting.
std::size_t largest_whole(std::size_t lanes);

/// The stripes of each piece of the plan, the same on every rank and for each call on the piece:
/// one of a small piece, one per lane of a large one, which cover it in order. All but a piece's
/// last stripe divide among the ranks into parts of whole 16 bytes, which libraries copy fastest.
std::vector<std::vector<Stripe>> stripes_of(const ExchangePlan& plan, int ranks);

}  // namespace dynamiccl
