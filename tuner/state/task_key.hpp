#pragma once

#include <compare>
#include <string>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Sizes whose logarithm to base 2 has the same whole part: bin 16 is [64 KiB, 128 KiB).
struct SizeBin {
  int log2 = 0;
  static SizeBin of(Bytes effective_size);
  [[nodiscard]] Bytes first() const { return Bytes{std::uint64_t{1} << log2}; }
  auto operator<=>(const SizeBin&) const = default;
};

/// What one decision is for: calls with equal keys share a setting. The bin is of
/// the effective size, after compression.
struct TaskKey {
  Collective collective = Collective::allreduce;
  SizeBin bin;
  int group_size = 1;
  int nodes = 1;
  Architecture architecture = Architecture::ring;
  Backend backend{};

  /// "openmpi/ring/allreduce/2^16/r2n1": stable, readable, what tables and logs show.
  [[nodiscard]] std::string text() const;
  /// @throws Error(data) when `text` is no key
  static TaskKey parse(const std::string& text);
  auto operator<=>(const TaskKey&) const = default;
};

/// A task key in a regime: decisions never leak between environments.
struct RegimeKey {
  std::string regime;  ///< Regime::id
  TaskKey task;
  auto operator<=>(const RegimeKey&) const = default;
};

}  // namespace dynamiccl
