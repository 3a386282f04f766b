#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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

struct ForeignRun;    // db/foreign_run.hpp
struct MergeSummary;  // db/foreign_run.hpp

/// The one writer of the database. Every call is one transaction; a killed program loses nothing
/// that a call returned from. Not thread-safe; several processes may write (WAL, busy timeout).
class Store {
 public:
  /// Opens or creates; applies forward migrations.
  /// @throws Error(data) for a newer schema or a file that is no database, Error(environment) when
  /// it cannot be opened
  /// The folder must exist. Runs and launches whose writer is gone become "interrupted".
  explicit Store(const std::string& path);
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  void begin_run(const RunInfo& run, const std::vector<GroupInfo>& groups,
                 const std::vector<CellInfo>& cells);
  /// Adds groups to a run's plan: a search only knows what to measure next when it has seen the
  /// last. Cells must be of these groups.
  void extend_run(const std::string& run_id, const std::vector<GroupInfo>& groups,
                  const std::vector<CellInfo>& cells);
  /// A row with status "running"; what a killed orchestrator leaves is marked "interrupted" by the
  /// next open.
  std::int64_t begin_launch(const std::string& run_id, const LaunchStart& launch);
  /// Stores end, facts, cells, samples and transports of all ranks and the per-cell statistics, in
  /// one transaction. Every cell of the group gets an outcome: what the ranks left, else the
  /// launch's own. Odd records (torn, repeated, of an unknown cell or rank) become events.
  /// @throws Error(data) when the launch is already finished or its block was measured by another
  void finish_launch(std::int64_t launch, const LaunchEnd& end,
                     const std::vector<RecordFile>& ranks);
  /// Reason for cells that cannot be measured here after all.
  void mark_unsupported(const std::string& run_id, const std::string& group_id,
                        const std::string& reason);
  /// @param status "complete" (every launch of the plan was tried, some may have failed), "failed"
  /// (could not go on, or an environment did not come up) or "interrupted"
  void end_run(const std::string& run_id, const std::string& status);
  /// Takes a stored run over for `run --resume`: status "running", this process its writer,
  /// launches left "running" become "interrupted".
  /// @throws Error(input) when the run is unknown or another live process is writing it
  void resume_run(const std::string& run_id);
  /// What the plan of a resumed run says now of each cell, can be measured or not and why, replaces
  /// what an earlier start noted. Cells that are not in the list can be measured.
  void replan_cells(const std::string& run_id, const std::vector<CellInfo>& cells);
  /// How the launches of a group came to an end: rule, launches, whether the target was reached.
  void set_stopping(const std::string& run_id, const std::string& group_id,
                    const std::string& stopping_json);
  /// One sentence about a run, or about one of its launches.
  /// @param kind a word to select by: "noise", "retry", ...
  void add_event(const std::string& run_id, std::optional<std::int64_t> launch,
                 const std::string& kind, const std::string& message);

  /// Stores another program's tables as a run of status "complete".
  /// @returns false when this run is already here; nothing is written then
  bool import_run(const ForeignRun& run);
  /// Copies the runs of another DynamICCL database that are not here yet, with everything that
  /// belongs to them. Runs still being measured are left out. The other database is only read.
  /// @throws Error(data) when it is no database of ours or newer than this program
  MergeSummary merge(const std::string& other_path);

  /// Attempts already stored for this group and block: the `attempt` of the next begin_launch.
  int next_attempt(const std::string& run_id, const std::string& group_id, int block) const;
  /// Stable ids of the groups in a run's plan.
  std::set<std::string> planned_groups(const std::string& run_id) const;
  /// Launches with status ok of a run.
  std::set<LaunchKey> finished_launches(const std::string& run_id) const;
  /// Of every cell with a result, by its first one.
  std::vector<SettledBatch> settled_batches(const std::string& run_id) const;
  /// Every cell with at least one result: what a stopping rule looks at.
  std::vector<CellMedians> launch_medians(const std::string& run_id) const;
  /// Newest run of this experiment (same spec text and overrides) that lacks something, a launch
  /// that failed in all its attempts included, and that no live process is writing; nullopt when
  /// there is none.
  /// @throws Error(input) when there is only one that a process may be writing, naming it
  std::optional<std::string> unfinished_run(const std::string& spec_text,
                                            const std::vector<std::string>& overrides) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dynamiccl
