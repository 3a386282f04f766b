#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/wire/run_config.hpp"
#include "workers/collectives/layout.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// How our own algorithms cut and overlap a call: knobs of a cell.
struct Pipelining {
  std::size_t segment_bytes = std::size_t{256} << 10;  ///< "segment_bytes": one message
  std::size_t depth = 2;  ///< "pipeline_depth": messages under way per neighbour and direction
  std::size_t shards =
      1;  ///< "shards": parts of a push_pull, each answered as soon as it is summed
};

/// Everything one call needs; buffers are never allocated while it runs.
struct Call {
  Communicator& comm;
  const Layout& layout;
  DataType type = DataType::float32;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;  ///< at least scratch_bytes
  Pipelining pipelining = {};
};

/// What a call's time is made of.
enum class TimeKind { collective, point_to_point };

/// Where the buffers must be for an operation: `any` hands them to the library and never looks.
enum class OperationMemory { any, host, gpu };

/// One way to run one collective: a row per collective, own algorithm and kind of memory.
struct OperationRow {
  Collective collective;
  /// "" = the library's collective under whatever name the cell gives, otherwise our own.
  std::string_view own_algorithm;
  TimeKind kind;
  void (*run)(const Call& call, PhaseTimes& times);
  std::size_t (*scratch_bytes)(const Layout& layout, const Place& place, DataType type,
                               const Pipelining& pipelining);
  OperationMemory memory = OperationMemory::any;
};

/// @param on_gpu the library works on GPU memory, see Communicator::works_on_gpu
/// @returns the row, or nullptr when the cell names an algorithm that does not exist for it
const OperationRow* find_operation(const WorkCell& cell, bool on_gpu = false);

/// Names of our own algorithms for a collective.
std::vector<std::string_view> own_algorithms(Collective collective, bool on_gpu = false);

/// @throws Error(input) when a knob is out of range: segments of at least 64 B, multiples of 8 B;
/// depth 1 to 64; shards 1 to 256
Pipelining pipelining_of(const WorkCell& cell);

}  // namespace dynamiccl
