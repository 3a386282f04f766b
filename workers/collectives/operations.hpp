#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "workers/collectives/call.hpp"

namespace dynamiccl {

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

}  // namespace dynamiccl
