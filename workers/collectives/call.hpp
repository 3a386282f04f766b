#pragma once

#include <cstddef>
#include <span>

#include "core/wire/run_config.hpp"
#include "workers/collectives/layout.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

class AggregationLink;

/// How our own algorithms cut and overlap a call: knobs of a cell.
struct Pipelining {
  std::size_t segment_bytes = std::size_t{256} << 10;  ///< "segment_bytes": one message
  std::size_t depth = 2;  ///< "pipeline_depth": messages under way per neighbour and direction
  std::size_t shards =
      1;  ///< "shards": parts of a push_pull, each answered as soon as it is summed
};

/// @throws Error(input) when a knob is out of range: segments of at least 64 B, multiples of 8 B;
/// depth 1 to 64; shards 1 to 256
Pipelining pipelining_of(const WorkCell& cell);

/// Everything one call needs; buffers are never allocated while it runs.
struct Call {
  Communicator& comm;
  const Layout& layout;
  DataType type = DataType::float32;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;  ///< at least scratch_bytes
  Pipelining pipelining = {};
  std::span<const int> nodes = {};         ///< nodes_of_ranks()
  AggregationLink* aggregation = nullptr;  ///< of cells that use one
};

}  // namespace dynamiccl
