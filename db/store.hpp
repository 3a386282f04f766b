#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/foreign_run.hpp"
#include "db/merge.hpp"
#include "db/rows.hpp"

namespace dynamiccl {

class Statements;  // db/statements.hpp

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
  /// belongs to them, and anew those that have got launches since they came. Runs still being
  /// measured are left out, so are those that went on here as well. The other database is only
  /// read.
  /// @throws Error(data) when it is no database of ours, newer than this program, or damaged
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
  std::unique_ptr<Statements> db_;
};

}  // namespace dynamiccl
