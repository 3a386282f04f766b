#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "db/foreign_run.hpp"

namespace dynamiccl {

/// Who chooses.
struct TuningInfo {
  std::string run_id;  ///< UUID of a stored run
  std::string mode;    ///< "live", "replay" or "job"
  std::string agent;
  std::string policy_version;  ///< empty = the agent has no policy
  std::uint64_t seed = 0;
  std::string options_json;
};

/// One choice and what came of it; fields as the columns of `decision`.
struct DecisionInfo {
  std::string task_key;
  std::string environment;
  std::string regime;
  int step = 0;
  std::string kind;  ///< "reference", "explore", "exploit" or "final"
  std::uint64_t epoch = 0;
  std::string arm;
  double propensity = 1;
  std::string state_json;
  std::string candidates_json;
  std::string guard = "pass";
  std::string asked_json;
  std::string applied_json;  ///< empty = nothing could be read back
  std::int64_t calls = 0;
  std::optional<double> time_us;
  std::optional<double> reference_us;
  std::optional<double> reward;
  std::string reward_json;             ///< empty = no reward
  std::optional<std::int64_t> launch;  ///< row of the launch, from Store::begin_launch
};

/// Who chose, and what.
using StoredSearch = std::pair<TuningInfo, std::vector<DecisionInfo>>;

/// Writes the decision log. Every call is one transaction. Has a connection of its own besides the
/// Store's; not thread-safe.
class DecisionLog {
 public:
  /// @throws as Store
  explicit DecisionLog(const std::string& path);
  ~DecisionLog();
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  /// @returns the row that decisions refer to. @throws Error(input) for a run that is not stored
  std::int64_t begin(const TuningInfo& tuning);
  void add(std::int64_t tuning, const std::vector<DecisionInfo>& decisions);
  /// The run of a leader's file as it was when it was imported: what is stored of it are the first
  /// of these choices, or begins with them. "" when there is none.
  /// @param source path of the file; of one elsewhere, a time must be the same as well, or all of
  /// it
  /// @param sha256 of the file
  std::string run_of_file(const std::vector<StoredSearch>& searches, const std::string& source,
                          const std::string& sha256);
  /// Whether choices of that run are stored.
  bool has_choices(const std::string& run_id);
  /// What of a leader's file is not stored yet, all of it or nothing. The run is stored by then.
  /// @param searches one per author @returns how many choices came
  std::size_t add_new(const ForeignRun& run, const std::vector<StoredSearch>& searches);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dynamiccl
