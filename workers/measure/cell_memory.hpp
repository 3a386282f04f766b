#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/wire/run_config.hpp"
#include "workers/collectives/layout.hpp"
#include "workers/communicator.hpp"
#include "workers/device/device.hpp"

namespace dynamiccl {

/// Host memory on cache lines, every page written once, so that no timed call meets a first touch;
/// without hints to the kernel of our own: what a training framework's allocator gets. It is
/// malloc's, so that glibc.malloc.hugetlb (core/vocabulary/malloc_settings.hpp) holds for it too.
class Buffer {
 public:
  Buffer() = default;
  /// @throws std::bad_alloc
  explicit Buffer(std::size_t bytes);
  /// Takes memory of another kind over: a GPU's, or page-locked.
  explicit Buffer(std::shared_ptr<std::byte> data) : data_(std::move(data)) {}
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  std::shared_ptr<std::byte> data_;
};

/// The launch's buffers in one kind of memory, sized once for its largest cell and used by all.
struct Buffers {
  Buffer in;
  Buffer out;
  Buffer scratch;
};

/// Where a cell's data is, and the route it takes to the library: knob "memory".
enum class MemoryMode {
  host,            ///< "host": the library works on it where it is
  gpu,             ///< on the GPU, and the library takes it from there: NCCL, CUDA-aware MPI
  staged_pinned,   ///< "device" for host libraries: copied down and up through page-locked memory
  staged_pageable  ///< "device-pageable": the same through ordinary memory
};

/// True when the data travels between GPU and host around every call.
constexpr bool is_staged(MemoryMode mode) {
  return mode == MemoryMode::staged_pinned || mode == MemoryMode::staged_pageable;
}

/// Start of a cell's input and output in one kind of memory.
struct BufferPair {
  std::byte* in = nullptr;
  std::byte* out = nullptr;
};

/// The launch's memory in every mode its cells ask for, and the data in it.
class CellMemory {
 public:
  /// Opens this rank's GPU where a cell needs one that the library has not opened. Ranks: all.
  CellMemory(Communicator& comm, const RunConfig& config);

  /// @returns why the cell's memory cannot be had on some rank, the same on every rank; "" = it can
  [[nodiscard]] std::string unsupported(const WorkCell& cell) const;
  [[nodiscard]] MemoryMode mode_of(const WorkCell& cell) const;
  /// Bus id of the GPU in use ("0000:4b:00.0"), "" without one.
  [[nodiscard]] std::string gpu_pci() const;

  /// Notes what a cell needs, in bytes; allocate() then takes the largest of each mode.
  void require(MemoryMode mode, std::size_t in, std::size_t out, std::size_t scratch);
  void allocate();

  /// What the library gets.
  [[nodiscard]] BufferPair library_buffers(MemoryMode mode) const;
  /// Where the data comes from and is verified.
  [[nodiscard]] BufferPair data_buffers(MemoryMode mode) const;
  [[nodiscard]] std::byte* scratch(MemoryMode mode) const;
  /// How often `bytes` fit into both of a mode's buffers, at least once.
  [[nodiscard]] std::size_t slots(MemoryMode mode, std::size_t bytes) const;

  void fill(MemoryMode mode, const DataSource& source, std::byte* at, std::size_t count) const;
  void poison(MemoryMode mode, std::byte* at, std::size_t bytes) const;
  [[nodiscard]] DataVerdict verify(MemoryMode mode, const DataSource& source, const std::byte* at,
                                   const std::vector<ExpectedPart>& parts) const;
  /// Flips one bit of a byte (see measure/fault.hpp).
  void flip(MemoryMode mode, std::byte* at) const;
  /// Copies for staged modes.
  void copy_down(std::byte* host, const std::byte* device, std::size_t bytes) const;
  void copy_up(std::byte* device, const std::byte* host, std::size_t bytes) const;

 private:
  struct Sizes {
    std::size_t in = 0;
    std::size_t out = 0;
    std::size_t scratch = 0;
  };
  /// The GPU that holds a mode's data, nullptr where host memory does.
  [[nodiscard]] Device* holder(MemoryMode mode) const;
  [[nodiscard]] Buffer host_buffer(MemoryMode mode, std::size_t bytes) const;

  Communicator& comm_;
  std::unique_ptr<Device> own_;
  std::string no_gpu_;  ///< why host libraries' data cannot be on GPUs here
  std::map<MemoryMode, Sizes> sizes_;
  std::map<MemoryMode, Buffers> library_;
  Buffers data_;  ///< staged modes: on the GPU
};

}  // namespace dynamiccl
