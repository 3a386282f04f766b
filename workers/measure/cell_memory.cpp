#include "workers/measure/cell_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace dynamiccl {
namespace {

constexpr const char* kKnob = "memory";

std::string asked_memory(const WorkCell& cell) {
  const auto knob = cell.knobs.find(kKnob);
  return knob == cell.knobs.end() ? "" : knob->second;
}

bool needs_own_gpu(const RunConfig& config) {
  return std::any_of(config.cells.begin(), config.cells.end(),
                     [](const WorkCell& cell) { return asked_memory(cell).starts_with("device"); });
}

}  // namespace

CellMemory::CellMemory(Communicator& comm, const RunConfig& config) : comm_(comm) {
  if (comm.works_on_gpu() || !needs_own_gpu(config)) return;
  try {
    own_ = open_device(planned_gpu(config.gpu_of_rank, comm.rank(), comm.rank()));
  } catch (const Error& error) {
    no_gpu_ = error.what();
  }
  // One rank without a GPU leaves the cell out for all; otherwise the others would wait for it.
  const double missing = sum_over_ranks(comm, {no_gpu_.empty() ? 0.0 : 1.0})[0];
  if (missing > 0 && no_gpu_.empty())
    no_gpu_ = fmt::format("{} of {} ranks have no usable GPU", missing, comm.size());
}

std::string CellMemory::unsupported(const WorkCell& cell) const {
  const std::string asked = asked_memory(cell);
  if (!asked.empty() && asked != "host" && asked != "device" && asked != "device-pageable")
    return fmt::format("knob memory is \"{}\"; {}", asked,
                       suggestion(asked, {"host", "device", "device-pageable"}));
  if (comm_.works_on_gpu()) {
    if (asked.empty() || asked == "device") return "";
    return fmt::format("memory = \"{}\": this library takes its data from the GPU", asked);
  }
  return asked.starts_with("device") ? no_gpu_ : "";
}

std::string CellMemory::gpu_pci() const {
  if (own_) return own_->pci();
  return comm_.works_on_gpu() && comm_.device() != nullptr ? comm_.device()->pci() : "";
}

MemoryMode CellMemory::mode_of(const WorkCell& cell) const {
  // A server without a GPU takes part from host memory.
  if (comm_.works_on_gpu()) return comm_.device() != nullptr ? MemoryMode::gpu : MemoryMode::host;
  const std::string asked = asked_memory(cell);
  if (asked == "device") return MemoryMode::staged_pinned;
  return asked == "device-pageable" ? MemoryMode::staged_pageable : MemoryMode::host;
}

Device* CellMemory::holder(MemoryMode mode) const {
  if (mode == MemoryMode::gpu) return comm_.device();
  return is_staged(mode) ? own_.get() : nullptr;
}

void CellMemory::require(MemoryMode mode, std::size_t in, std::size_t out, std::size_t scratch) {
  Sizes& sizes = sizes_[mode];
  sizes.in = std::max(sizes.in, in);
  sizes.out = std::max(sizes.out, out);
  sizes.scratch = std::max(sizes.scratch, scratch);
}

Buffer CellMemory::host_buffer(MemoryMode mode, std::size_t bytes) const {
  return mode == MemoryMode::staged_pinned ? Buffer(own_->allocate_pinned(bytes)) : Buffer(bytes);
}

void CellMemory::allocate() {
  Sizes staged;
  for (const auto& [mode, sizes] : sizes_) {
    // In place, input and output share the larger one.
    const std::size_t out = std::max(sizes.in, sizes.out);
    if (mode == MemoryMode::gpu) {
      Device& gpu = *comm_.device();
      library_[mode] = {Buffer(gpu.allocate(sizes.in)), Buffer(gpu.allocate(out)),
                        Buffer(gpu.allocate(sizes.scratch))};
      continue;
    }
    library_[mode] = {host_buffer(mode, sizes.in), host_buffer(mode, out), Buffer(sizes.scratch)};
    if (!is_staged(mode)) continue;
    staged.in = std::max(staged.in, sizes.in);
    staged.out = std::max(staged.out, out);
  }
  if (own_)
    data_ = {Buffer(own_->allocate(staged.in)), Buffer(own_->allocate(staged.out)), Buffer()};
}

BufferPair CellMemory::library_buffers(MemoryMode mode) const {
  const Buffers& buffers = library_.at(mode);
  return {buffers.in.data(), buffers.out.data()};
}

BufferPair CellMemory::data_buffers(MemoryMode mode) const {
  if (!is_staged(mode)) return library_buffers(mode);
  return {data_.in.data(), data_.out.data()};
}

std::byte* CellMemory::scratch(MemoryMode mode) const { return library_.at(mode).scratch.data(); }

std::size_t CellMemory::slots(MemoryMode mode, std::size_t bytes) const {
  const Sizes& sizes = sizes_.at(mode);
  const std::size_t least = std::min(sizes.in, sizes.out);
  return bytes == 0 ? 1 : std::max<std::size_t>(1, least / bytes);
}

void CellMemory::fill(MemoryMode mode, const DataSource& source, std::byte* at,
                      std::size_t count) const {
  if (Device* gpu = holder(mode)) return gpu->fill(source, at, comm_.rank(), 0, count);
  source.fill(at, comm_.rank(), 0, count);
}

void CellMemory::poison(MemoryMode mode, std::byte* at, std::size_t bytes) const {
  if (Device* gpu = holder(mode)) return gpu->poison(at, bytes);
  dynamiccl::poison(at, bytes);
}

DataVerdict CellMemory::verify(MemoryMode mode, const DataSource& source, const std::byte* at,
                               const std::vector<ExpectedPart>& parts) const {
  if (Device* gpu = holder(mode)) return gpu->verify(source, at, parts);
  return dynamiccl::verify(source, at, parts);
}

void CellMemory::flip(MemoryMode mode, std::byte* at) const {
  Device* gpu = holder(mode);
  std::byte value = std::byte{0};
  if (gpu != nullptr)
    gpu->copy_to_host(&value, at, 1);
  else
    value = *at;
  value ^= std::byte{1};
  if (gpu != nullptr)
    gpu->copy_to_device(at, &value, 1);
  else
    *at = value;
}

void CellMemory::copy_down(std::byte* host, const std::byte* device, std::size_t bytes) const {
  own_->copy_to_host(host, device, bytes);
}

void CellMemory::copy_up(std::byte* device, const std::byte* host, std::size_t bytes) const {
  own_->copy_to_device(device, host, bytes);
}

Buffer::Buffer(std::size_t bytes) {
  // A cache line, as training frameworks align. On page boundaries Open MPI's all-reduce of 64 MiB
  // takes 5 % longer: its sums then read where they have just written, as far as the low 12 address
  // bits tell.
  constexpr std::size_t kLine = 64;
  if (bytes == 0) return;
  const std::size_t rounded = (bytes + kLine - 1) / kLine * kLine;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kLine, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  data_ = std::shared_ptr<std::byte>(memory, [](std::byte* at) { std::free(at); });
  std::memset(data_.get(), 0, rounded);
}

}  // namespace dynamiccl
