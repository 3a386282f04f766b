#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/wire/record.hpp"

namespace dynamiccl {

/// One `dynamiccl run`: its text and its surroundings.
struct RunInfo {
  std::string id;    ///< UUID
  std::string name;  ///< experiment's name
  std::string spec_path;
  std::string spec_text;  ///< the experiment file as read, with overrides listed in `overrides`
  std::vector<std::string> overrides;
  std::uint64_t seed = 0;
  std::vector<std::string> argv;
  std::string tool_version;  ///< version, git revision, "dirty" when the tree had changes
  std::string host_json;     ///< kernel, CPU, memory, boot id, distribution: no secrets
  std::string replay_of;     ///< uuid of the launch this run repeats; empty for an experiment
  std::string
      protocol_json;  ///< resolved Protocol and launches; "rank_aggregation" is read from it
};

/// Ranks that start together and measure all cells of the group.
struct GroupInfo {
  std::string id;            ///< stable_id of the canonical key
  std::string environment;   ///< profile name
  std::string profile_json;  ///< resolved profile
  std::string backend;
  std::string architecture;
  int ranks = 1;
  std::string knobs_json;  ///< launch-scope knobs
};

struct CellInfo {
  std::string id;  ///< stable_id of the canonical key
  std::string group_id;
  std::string collective;
  std::uint64_t size_bytes = 0;
  std::string datatype;
  std::string algorithm;
  bool in_place = false;
  std::string knobs_json;
  std::string unsupported_reason;  ///< empty = to be measured
};

struct LaunchStart {
  std::string uuid;
  std::string group_id;
  int block = 0;     ///< every group is launched once per block, in random order
  int attempt = 0;   ///< 0, 1, ... for the same (group, block)
  int position = 0;  ///< place in the block's order
  std::vector<std::string> argv;
  std::string run_json;          ///< RunConfig as given to the ranks
  std::string environment_json;  ///< allow-listed variables
  std::string container_json;    ///< Environment::provenance()
  std::string noise_json;        ///< PSI, load, steal before the launch
};

struct LaunchEnd {
  LaunchStatus status = LaunchStatus::ok;
  std::string reason;  ///< why not ok
  int exit_code = 0;
  int signal = 0;
  double duration_s = 0;
  std::string stderr_tail;
  std::string noise_json;        ///< PSI, load, steal, throttling during the launch
  std::string noise_flags_json;  ///< list of sentences, "" = not judged
  std::string regime_id;
  std::string regime_name;
  std::string regime_json;  ///< derivation, see profiles/detect
};

/// Medians of one cell over the launches of a run that count, in the order of their blocks.
struct CellMedians {
  std::string group_id;
  std::string cell_id;
  std::vector<double> median_us;
};

/// Calls that one sample of a cell counts in a run.
struct SettledBatch {
  std::string group_id;
  std::string cell_id;
  int calls = 1;
};

/// What a stored run still lacks, for `run --resume`.
struct LaunchKey {
  std::string group_id;
  int block = 0;
  // clang-tidy 14 takes the 0 of the ordering for a pointer.
  auto operator<=>(const LaunchKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

}  // namespace dynamiccl
