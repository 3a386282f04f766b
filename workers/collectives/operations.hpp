#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/run_config.hpp"
#include "workers/collectives/layout.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Everything one call needs; buffers are never allocated while it runs.
struct Call {
  Communicator& comm;
  const Layout& layout;
  DataType type = DataType::float32;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;  ///< at least scratch_bytes
  std::size_t segment_bytes = 0;
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
                               std::size_t segment_bytes);
  OperationMemory memory = OperationMemory::any;
};

/// @param on_gpu the library works on GPU memory, see Communicator::works_on_gpu
/// @returns the row, or nullptr when the cell names an algorithm that does not exist for it
const OperationRow* find_operation(const WorkCell& cell, bool on_gpu = false);

/// Names of our own algorithms for a collective.
std::vector<std::string_view> own_algorithms(Collective collective, bool on_gpu = false);

/// Pipelining unit of our own algorithms: knob "segment_bytes", 256 KiB unless said.
/// @throws Error(input) when the knob is no positive size
std::size_t segment_bytes_of(const WorkCell& cell);

}  // namespace dynamiccl
