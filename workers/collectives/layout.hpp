#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/wire/run_config.hpp"
#include "workers/data/data.hpp"
#include "workers/library_calls.hpp"

namespace dynamiccl {

/// Where this rank stands in the launch.
struct Place {
  Architecture architecture = Architecture::ring;
  int ranks = 1;
  int rank = 0;
  int server_rank = 0;              ///< PS only
  std::span<const int> nodes = {};  ///< of each rank (nodes_of_ranks()); empty: not asked
};

/// What one cell means on one rank: how much it holds, and what it must hold afterwards.
///
/// Collectives whose size counts all ranks' parts (allgather, reduce_scatter, gather, alltoall)
/// give every rank the same number of elements, rounded down, as nccl-tests does; no v-variant is
/// used, because that is another routine with other algorithms. `used_bytes` says what is left of
/// the size asked for; less than one element per rank is unsupported, none at all (size 0) is a
/// call of nothing. alltoallv and allgatherv are the v-variants asked for: their parts differ
/// (uneven_parts()) and use the whole size.
struct Layout {
  std::string unsupported;  ///< why the cell has no meaning here; empty when it has one

  std::size_t count = 0;            ///< elements as the library's call counts them
  std::size_t in_elements = 0;      ///< this rank's input; 0: none
  std::size_t out_elements = 0;     ///< this rank's output; 0: none
  std::size_t in_place_offset = 0;  ///< in place: the input starts here in the output, or
  bool out_inside_in = false;  ///< the output starts there in the input (reduce_scatter, scatter)
  bool one_buffer = false;     ///< broadcast: root's input and all outputs are one buffer
  std::vector<ExpectedPart> expected;  ///< what this rank's output must hold
  PairCounts pairs;                    ///< alltoallv and allgatherv only

  int root = 0;
  /// One rank alone sends or receives everything. Such calls are always timed one by one: in a
  /// back-to-back batch the root runs ahead, calls overlap, and the mean understates the time of
  /// one call.
  bool rooted = false;
  int last_receiver = 0;            ///< highest rank that has an output
  std::uint64_t used_bytes = 0;     ///< size after rounding down to whole elements on every rank
  std::uint64_t payload_bytes = 0;  ///< this rank's share of the least traffic one call needs;
                                    ///< the ranks' sum is the least that any algorithm moves
};

Layout layout_of(const WorkCell& cell, const Place& place);

}  // namespace dynamiccl
