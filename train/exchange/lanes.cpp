#include "train/exchange/lanes.hpp"

#include <algorithm>

namespace dynamiccl {
namespace {

constexpr std::size_t kWholePerLane = (1U << 20) / sizeof(float);
constexpr std::size_t kAligned = 16 / sizeof(float);

std::vector<Stripe> over_all(const Piece& piece, std::size_t lanes, std::size_t ranks) {
  const std::size_t unit = kAligned * ranks;
  const std::size_t share = piece.count / lanes / unit * unit;
  std::vector<Stripe> stripes;
  for (std::size_t lane = 0; lane < lanes; ++lane)
    stripes.push_back({lane, piece.offset + lane * share, share});
  stripes.back().count = piece.count - (lanes - 1) * share;
  return stripes;
}

}  // namespace

std::size_t most_lanes(int ranks, int cores) {
  std::size_t lanes = 1;
  while (lanes < kMostLanes &&
         2 * (2 * lanes * static_cast<std::size_t>(ranks)) <= static_cast<std::size_t>(cores))
    lanes *= 2;
  return lanes;
}

std::size_t largest_whole(std::size_t lanes) { return lanes * kWholePerLane; }

std::vector<std::vector<Stripe>> stripes_of(const ExchangePlan& plan, int ranks) {
  const std::size_t lanes = plan.path.lanes;
  std::vector<std::vector<Stripe>> stripes;
  std::vector<std::size_t> load(lanes, 0);
  for (const Piece& piece : plan.pieces) {
    if (lanes > 1 && piece.count > largest_whole(lanes)) {
      stripes.push_back(over_all(piece, lanes, static_cast<std::size_t>(ranks)));
    } else {
      // Where fewest bytes went before it: no lane is left with more than a small piece when the
      // others are done.
      const auto least = std::min_element(load.begin(), load.end());
      stripes.push_back(
          {{static_cast<std::size_t>(least - load.begin()), piece.offset, piece.count}});
    }
    for (const Stripe& stripe : stripes.back()) load[stripe.lane] += stripe.count;
  }
  return stripes;
}

}  // namespace dynamiccl
