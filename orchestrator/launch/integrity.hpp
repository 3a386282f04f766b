#pragma once

#include <string>
#include <vector>

#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"

namespace dynamiccl {

/// What a launch left behind, compared with what it was asked for.
struct LaunchCheck {
  std::vector<std::string> problems;  ///< why the launch failed; empty = it is what was asked for
  std::size_t failed_cells = 0;       ///< wrong or failed on some rank
  std::size_t unsupported_cells = 0;  ///< the library has no such thing, said by every rank
};

/// Checks world size, ranks, launch id, the presence of every cell on every rank, finite samples,
/// that something was verified where it was asked for, and the end record: exit code 0 alone proves
/// nothing (N one-rank jobs end with 0).
/// @param files one per rank, in rank order; an absent file is an empty one
LaunchCheck check_records(const RunConfig& config, const std::vector<RecordFile>& files);

/// Why cells failed, in words: "2 cells with a wrong result, 1 cell whose training diverged"; "" =
/// none.
std::string failed_cells_text(const std::vector<RecordFile>& files);

/// The ranks' record files in rank order; a missing one is empty, a damaged one ends at the damage.
/// @param problems receives one sentence per damaged file
std::vector<RecordFile> read_launch_records(const RunConfig& config,
                                            std::vector<std::string>& problems);

}  // namespace dynamiccl
