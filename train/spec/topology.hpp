#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Who averages weights with whom, where there is neither server nor all-reduce.
DYN_NAMED_ENUM(PeerGraph, "topology", '-',
               ring,           ///< with both neighbours
               torus,          ///< with up to four, in a grid as near to a square as there is
               exponential,    ///< with those 1, 2, 4, ... ahead, directed
               random_pairs);  ///< in each round with another one, drawn at random

/// One worker's part of a round: its new weights are `self` times its own and `weight` times each
/// neighbour's. Over all workers that is a doubly stochastic matrix, so that the mean stays.
struct Mixing {
  struct From {
    int worker;
    double weight;
  };
  double self = 1;
  std::vector<From> from;  ///< by number
  std::vector<int> to;     ///< who takes this worker's weights, by number
};

/// @param round counts from 0; only random pairs change with it, drawn by `seed`
Mixing mixing_of(PeerGraph topology, int workers, int worker, std::uint64_t round,
                 std::uint64_t seed);

/// Why so many workers have no such topology; empty where they have.
std::string topology_misfit(PeerGraph topology, int workers);

/// 1 - the share of their distance from the mean that workers keep in a round at most (of random
/// pairs: expected). 0 = they never agree, 1 = at once.
double spectral_gap(PeerGraph topology, int workers);

}  // namespace dynamiccl
