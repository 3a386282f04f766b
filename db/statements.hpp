#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"
#include "db/file_guard.hpp"
#include "db/launch_ingest.hpp"
#include "db/owner.hpp"
#include "db/rows.hpp"

namespace dynamiccl {

/// Now as text, UTC with milliseconds.
std::string now_utc();
/// A list of texts as a JSON document.
std::string as_json(const std::vector<std::string>& list);
/// "{}" for a document that was not given.
std::string json_or_empty(const std::string& document);
/// What makes two runs runs of the same experiment.
std::string experiment_digest(const std::string& spec_text,
                              const std::vector<std::string>& overrides);

/// The statements behind Store, importing and merging. Methods run inside a transaction that the
/// caller opened with write.
class Statements {
 public:
  explicit Statements(const std::string& path);
  /// On a database of this process alone.
  Statements(SQLite::Database db, std::string path);
  ~Statements();
  Statements(const Statements&) = delete;
  Statements& operator=(const Statements&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] SQLite::Database& db() const { return db_; }
  [[nodiscard]] LaunchIngest& ingest() const { return *ingest_; }

  /// One transaction, its errors explained. Taking the write lock at once avoids the deadlock of
  /// two readers that both want to write.
  /// @param refused as of throw_explained(): input is a command's that has no run to resume
  template <class Work>
  auto write(const std::string& doing, Work&& work,
             ErrorKind refused = ErrorKind::environment) const {
    return explained(
        path_, doing,
        [&] {
          if (guard_) guard_->check();
          SQLite::Transaction transaction(db_, SQLite::TransactionBehavior::IMMEDIATE);
          if constexpr (std::is_void_v<decltype(work())>) {
            work();
            transaction.commit();
          } else {
            auto result = work();
            transaction.commit();
            return result;
          }
        },
        refused);
  }

  template <class Work>
  auto read(const std::string& doing, Work&& work) const {
    return explained(path_, doing, [&] {
      // What another file says is no answer.
      if (guard_) guard_->check();
      return work();
    });
  }

  template <class... Values>
  SQLite::Statement statement(const std::string& sql, const Values&... values) const {
    SQLite::Statement prepared(db_, sql);
    int index = 0;
    const auto bind = [&](const auto& value) { prepared.bind(++index, value); };
    (bind(values), ...);
    return prepared;
  }

  template <class... Values>
  void execute(const std::string& sql, const Values&... values) const {
    statement(sql, values...).exec();
  }

  std::int64_t insert_or_find(const std::string& insert, const std::string& find,
                              const std::vector<std::string>& row) {
    SQLite::Statement inserting(db_, insert);
    for (std::size_t i = 0; i < row.size(); ++i) inserting.bind(static_cast<int>(i + 1), row[i]);
    inserting.exec();
    auto found = statement(find, row.front());
    DYN_ASSERT(found.executeStep(), "a row that was just inserted is found");
    return found.getColumn(0).getInt64();
  }

  std::int64_t run_row(const std::string& run_id) const {
    auto found = statement("SELECT id FROM run WHERE uuid = ?", run_id);
    if (!found.executeStep()) {
      throw Error(ErrorKind::input,
                  fmt::format("database {}: has no run \"{}\"; `dynamiccl list` shows its runs",
                              path_, run_id));
    }
    return found.getColumn(0).getInt64();
  }

  std::int64_t group_row(const std::string& run_id, const std::string& group_id) const {
    const std::int64_t run = run_row(run_id);
    auto found = statement("SELECT id FROM plan_group WHERE run_id = ? AND key = ?", run, group_id);
    if (!found.executeStep()) {
      throw Error(ErrorKind::data,
                  fmt::format("database {}: run {} has no group \"{}\" in its plan", path_, run_id,
                              group_id));
    }
    return found.getColumn(0).getInt64();
  }

  void insert_run(const RunInfo& run);
  void insert_groups(std::int64_t run, const std::vector<GroupInfo>& groups,
                     std::map<std::string, std::pair<std::int64_t, int>>& rows);
  void insert_cells(const std::vector<CellInfo>& cells,
                    const std::map<std::string, std::pair<std::int64_t, int>>& groups) const;
  void own(std::int64_t run) const;
  ProcessState owner_state(std::int64_t run) const;
  void event(std::int64_t run, std::optional<std::int64_t> launch, const std::string& kind,
             const std::string& message) const;
  void interrupt(std::int64_t run, const std::string& why) const;
  void recover_left_overs() const;
  LaunchIngest::Launch unfinished_launch(std::int64_t launch) const;
  void refuse_second_measurement(const LaunchIngest::Launch& launch) const;
  void close_launch(const LaunchIngest::Launch& launch, const LaunchEnd& end);

 private:
  std::string path_;
  mutable SQLite::Database db_;
  std::unique_ptr<FileGuard> guard_;
  std::unique_ptr<LaunchIngest> ingest_;
};

}  // namespace dynamiccl
