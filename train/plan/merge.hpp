#pragma once

#include <cstddef>
#include <vector>

#include "train/plan/cost_table.hpp"

namespace dynamiccl {

/// A gradient in the order in which the backward pass finishes them.
struct Gradient {
  double ready_us = 0;  ///< since the step began; does not fall
  std::size_t bytes = 0;
};

/// Neighbours that travel as one message: [first, last).
struct Group {
  std::size_t first = 0;
  std::size_t last = 0;
  bool operator==(const Group&) const = default;
};

/// Groups of which the last arrives the earliest of all 2^(L-1) ways, for any cost that is not
/// negative, where they travel one after the other, each once its last gradient is ready; and of
/// those ways the one with the fewest: F(j) = min over i of max(F(i), ready(j)) + cost(bytes of
/// i..j); a smaller F(i) never hurts. The same for so many groups, one more at a time until F is
/// reached. O(L^2) for each of the groups.
std::vector<Group> optimal_merge(const std::vector<Gradient>& gradients, const Cost& cost);

/// The published rule (Shi, Chu, Li, doi 10.1109/INFOCOM.2019.8737367): a gradient waits for the
/// next one when that is ready before its own transfer would end, and the transfer either has not
/// begun by then or waiting costs less than a start-up.
/// @param start_up_us the alpha of the rule
std::vector<Group> greedy_merge(const std::vector<Gradient>& gradients, const Cost& cost,
                                double start_up_us);

/// Every gradient alone; all as one; neighbours up to `bytes` together.
std::vector<Group> each_alone(std::size_t gradients);
std::vector<Group> all_together(std::size_t gradients);
std::vector<Group> up_to(const std::vector<Gradient>& gradients, std::size_t bytes);
/// PyTorch DDP's buckets: a bucket closes with the gradient that fills it, the first one at `first`
/// bytes, the others at `bytes`.
std::vector<Group> filled(const std::vector<Gradient>& gradients, std::size_t first,
                          std::size_t bytes);

}  // namespace dynamiccl
