#pragma once

#include <cstdint>
#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// Minor page faults of this process so far (getrusage): pages that the kernel had to give it anew.
std::uint64_t minor_faults();

/// Bytes of this process in transparent huge pages (AnonHugePages of /proc/self/smaps_rollup).
/// @returns -1 where the kernel does not tell
std::int64_t huge_page_bytes();

/// Whether the allocator takes a block of 64 MiB from memory that it keeps: 1, from a mapping made
/// for it alone: 0. -1: it is not glibc's and tells nothing. The block is never touched.
int keeps_large_blocks();

/// What a launch's calls cost in page faults and what the allocator's settings
/// (core/vocabulary/malloc_settings.hpp) really came to in this process, for
/// TransportRecord::details.
class MemoryWatch {
 public:
  /// @param faults in the timed part of the cell, all samples together
  /// @param calls of the library in that part
  void add_cell(const std::string& cell_id, std::uint64_t faults, std::uint64_t calls);

  /// Call it after the cells, while their buffers live.
  /// @returns {"page_bytes", "cells": {ID: {"minor_faults", "calls"}}, "allocator": {"tunables",
  /// "libc", "keeps"}, "huge_pages": {"mode", "bytes"}, "not_effective": {SETTING: reason}}
  [[nodiscard]] nlohmann::json conclude() const;

 private:
  nlohmann::json cells_ = nlohmann::json::object();
};

/// Why settings that `tunables` (GLIBC_TUNABLES) ask for are not in force, by name; empty = what
/// was asked for holds.
/// @param keeps keeps_large_blocks()
/// @param huge_bytes huge_page_bytes()
/// @param mode of transparent huge pages
nlohmann::json not_effective(const std::string& tunables, int keeps, std::int64_t huge_bytes,
                             const std::string& mode, const std::string& libc);

}  // namespace dynamiccl
