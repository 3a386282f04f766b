#pragma once

#include <string_view>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Cost constants of the path between two ranks (Hockney's alpha and beta, and the sum's gamma).
struct LinkParameters {
  double alpha_us = 1;              ///< start-up of one message
  double beta_us_per_byte = 1e-4;   ///< on the wire
  double gamma_us_per_byte = 2e-5;  ///< summing
};

/// One collective as its cost model sees it.
struct CollectiveShape {
  Collective collective = Collective::allreduce;
  int ranks = 2;
  double bytes = 0;    ///< as nccl-tests counts: the whole buffer
  double segment = 0;  ///< pipelining unit in bytes; 0 = none
  double fanout = 0;   ///< of chains and k-nomial trees; 0 = the algorithm's usual
  double depth = 0;    ///< of our own server: segments of a worker under way; 0 = its usual
  double shards = 0;   ///< of our own server: parts answered by themselves; 0 = its usual
};

/// What an algorithm does on its critical path: rounds * alpha + volume * beta + summed * gamma.
struct CollectiveWork {
  double rounds = 0;
  double volume = 0;  ///< bytes
  double summed = 0;  ///< bytes
  [[nodiscard]] double at(const LinkParameters& link) const {
    return rounds * link.alpha_us + volume * link.beta_us_per_byte +
           summed * link.gamma_us_per_byte;
  }
};

/// Between whom an algorithm's rounds pass, which decides what the shape of a network costs it.
enum class MessagePattern {
  neighbours,      ///< every rank sends to the next one in all rounds
  exchange,        ///< in round k with the rank at distance 2^k, as much in each
  exchange_near,   ///< half as much in each further round
  exchange_far,    ///< twice as much in each further round
  tree,            ///< in round k to the rank at distance 2^k from one half of those left
  pipelined_tree,  ///< all rounds of a tree at once
  root,            ///< between each and the first rank, one after another
  in_switch        ///< the network itself sums
};

/// Analytic work of an algorithm by the name its library gives it:
///   ring                2(n-1) alpha, 2(n-1)/n m beta, (n-1)/n m gamma
///   binary tree         2 alpha log n, 2 m log n beta
///   recursive doubling  alpha log n, m log n beta
///   Rabenseifner        2 alpha log n, 2(n-1)/n m beta
///   double binary tree  2 alpha log n, 2 m beta
///   pipelines           (hops + segments - 1) times one segment
///   our own server      w workers' segments one after the other, sums behind the next ones where
///                       several are under way, a shard's answers behind the next shard's way in
/// Names that are not known count as "linear" of their collective. One rank costs nothing.
CollectiveWork collective_work(std::string_view algorithm, const CollectiveShape& shape);

MessagePattern pattern_of(std::string_view algorithm, Collective collective);

/// One name of each model that needs no network that sums.
std::vector<std::string_view> modelled_algorithms(Collective collective);

/// A parameter server on GPUs: a push is the library's reduce, a pull its broadcast. Other
/// collectives: as collective_work().
CollectiveWork device_work(std::string_view algorithm, const CollectiveShape& shape);

}  // namespace dynamiccl
