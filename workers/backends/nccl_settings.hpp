#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "workers/library_calls.hpp"

namespace dynamiccl {

/// NCCL's MAXCHANNELS.
inline constexpr int kMostCtas = 64;

/// How one NCCL communicator is made: NCCL reads all of this when a communicator starts, so that
/// cells with different settings get communicators of their own in one process.
struct NcclSettings {
  std::string algorithm;  ///< NCCL_ALGO, "" = NCCL's choice
  std::string protocol;   ///< NCCL_PROTO
  std::optional<int> min_ctas;
  std::optional<int> max_ctas;
  std::optional<int> cga_cluster_size;
  std::string thread_thresholds;  ///< NCCL_THREAD_THRESHOLDS

  auto operator<=>(const NcclSettings&) const = default;
};

/// Names of a collective's algorithms: "library", "ring", "tree", each also with "/ll", "/ll128" or
/// "/simple"; "library" alone for collectives that NCCL's tuning does not cover.
std::vector<std::string> nccl_algorithms(Collective collective);

/// Why the knobs or the algorithm cannot be obeyed; nullopt when they can.
std::optional<std::string> nccl_unsupported(const CallShape& shape);

/// Settings of a cell that nccl_unsupported() has passed.
NcclSettings nccl_settings(const CallShape& shape);

/// "ring/ll128, 4 CTAs at most": what was asked for, "library" when nothing was.
std::string describe(const NcclSettings& settings);

}  // namespace dynamiccl
