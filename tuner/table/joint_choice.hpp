#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/table/table.hpp"

namespace dynamiccl {

/// One launch's typical time of one call under one setting.
struct ScopedObservation {
  RegimeKey key;
  Bytes size;
  ActionSettings setting;  ///< launch and call knobs as they were asked for
  int channels = 0;        ///< that NCCL used; 0: unknown
  double median_us = 0;
};

struct JointOptions {
  /// Sizes from here on may not get slower; below, a launch setting may cost something, and the
  /// table says so.
  Bytes guarded_from{64 << 10};
  /// For a profile of small messages: larger ones are not looked at, and no size is given away.
  std::optional<Bytes> largest = std::nullopt;
  double tolerance = 0.02;  ///< slower by no more than this is not slower
};

/// Chooses launch and call settings together: a launch setting holds for all sizes, so the one is
/// taken whose best call settings gain most over all sizes (the sum of ln(default / time)) among
/// those that make no guarded size slower. Evidence is of the observations alone: confirm it on
/// fresh launches. Keys without an observation of the default are left out.
/// @returns rows of every (regime, backend, collective, ranks) that was observed
std::vector<TableEntry> choose_jointly(const std::vector<ScopedObservation>& observations,
                                       const JointOptions& options = {});

}  // namespace dynamiccl
