#include "db/store.hpp"

#include <fmt/format.h>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/statements.hpp"

namespace dynamiccl {
namespace {

std::string why_not_resumed(const std::string& run, std::int64_t row, ProcessState owner,
                            std::int64_t pid, const std::string& host, const std::string& path) {
  if (owner == ProcessState::alive)
    return fmt::format("run {} is being measured by process {}; wait for it or end it first", run,
                       pid);
  return fmt::format(
      "run {} is marked as being measured by process {} of host {}, which cannot be seen from here "
      "(another machine or container). When it has ended, say so and resume again: sqlite3 {} "
      "\"UPDATE run SET status = 'interrupted' WHERE id = {}\"",
      run, pid, host, shell_quote(path), row);
}

}  // namespace

Store::Store(const std::string& path) : db_(std::make_unique<Statements>(path)) {}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

void Store::begin_run(const RunInfo& run, const std::vector<GroupInfo>& groups,
                      const std::vector<CellInfo>& cells) {
  db_->write("storing the plan of run " + run.id, [&] {
    db_->insert_run(run);
    const std::int64_t row = db_->run_row(run.id);
    db_->own(row);
    std::map<std::string, std::pair<std::int64_t, int>> group_rows;
    db_->insert_groups(row, groups, group_rows);
    db_->insert_cells(cells, group_rows);
  });
}

void Store::extend_run(const std::string& run_id, const std::vector<GroupInfo>& groups,
                       const std::vector<CellInfo>& cells) {
  db_->write("adding to the plan of run " + run_id, [&] {
    std::map<std::string, std::pair<std::int64_t, int>> group_rows;
    db_->insert_groups(db_->run_row(run_id), groups, group_rows);
    db_->insert_cells(cells, group_rows);
  });
}

std::int64_t Store::begin_launch(const std::string& run_id, const LaunchStart& launch) {
  return db_->write("storing the start of launch " + launch.uuid, [&] {
    const std::int64_t group = db_->group_row(run_id, launch.group_id);
    db_->execute(
        "INSERT INTO launch(uuid, group_id, block, attempt, position, status, started_utc,"
        " argv_json, run_config_json, environment_json, container_json, noise_before_json)"
        " VALUES (?,?,?,?,?,'running',?,?,?,?,?,?)",
        launch.uuid, group, launch.block, launch.attempt, launch.position, now_utc(),
        as_json(launch.argv), json_or_empty(launch.run_json),
        json_or_empty(launch.environment_json), json_or_empty(launch.container_json),
        json_or_empty(launch.noise_json));
    return static_cast<std::int64_t>(db_->db().getLastInsertRowid());
  });
}

void Store::finish_launch(std::int64_t launch, const LaunchEnd& end,
                          const std::vector<RecordFile>& ranks) {
  DYN_ASSERT(end.status != LaunchStatus::running, "a finished launch has an outcome");
  db_->write(fmt::format("storing launch {}", launch), [&] {
    const auto row = db_->unfinished_launch(launch);
    if (end.status == LaunchStatus::ok) db_->refuse_second_measurement(row);
    db_->ingest().store(row, end, ranks, [&](const std::string& kind, const std::string& message) {
      db_->event(row.run_id, launch, kind, message);
    });
    db_->close_launch(row, end);
  });
}

void Store::mark_unsupported(const std::string& run_id, const std::string& group_id,
                             const std::string& reason) {
  db_->write("marking a group as unsupported", [&] {
    const std::int64_t group = db_->group_row(run_id, group_id);
    // What was measured before stays measured.
    db_->execute(
        "UPDATE run_cell SET unsupported_reason = ? WHERE group_id = ? "
        "AND unsupported_reason IS NULL",
        reason, group);
  });
}

void Store::replan_cells(const std::string& run_id, const std::vector<CellInfo>& cells) {
  db_->write("storing anew what run " + run_id + " can measure", [&] {
    const std::int64_t run = db_->run_row(run_id);
    db_->execute(
        "UPDATE run_cell SET unsupported_reason = NULL WHERE unsupported_reason IS NOT NULL "
        "AND group_id IN (SELECT id FROM plan_group WHERE run_id = ?)",
        run);
    SQLite::Statement update(
        db_->db(),
        "UPDATE run_cell SET unsupported_reason = ? WHERE key = ? "
        "AND group_id = (SELECT id FROM plan_group WHERE run_id = ? AND key = ?)");
    for (const auto& cell : cells) {
      if (cell.unsupported_reason.empty()) continue;
      update.bind(1, cell.unsupported_reason);
      update.bind(2, cell.id);
      update.bind(3, run);
      update.bind(4, cell.group_id);
      update.exec();
      update.reset();
    }
  });
}

void Store::set_stopping(const std::string& run_id, const std::string& group_id,
                         const std::string& stopping_json) {
  db_->write("storing how a group stopped", [&] {
    db_->execute("UPDATE plan_group SET stopping_json = ? WHERE id = ?", stopping_json,
                 db_->group_row(run_id, group_id));
  });
}

void Store::end_run(const std::string& run_id, const std::string& status) {
  DYN_ASSERT(status == "complete" || status == "failed" || status == "interrupted",
             "a run ends complete, failed or interrupted");
  db_->write("storing the end of run " + run_id, [&] {
    const std::int64_t run = db_->run_row(run_id);
    // Left when an error ended the run between a launch's two steps.
    db_->interrupt(run, "the run ended before the launch's outcome was stored");
    db_->execute("UPDATE run SET status = ?, ended_utc = ? WHERE id = ?", status, now_utc(), run);
  });
}

void Store::resume_run(const std::string& run_id) {
  db_->write("resuming run " + run_id, [&] {
    const std::int64_t run = db_->run_row(run_id);
    auto row = db_->statement("SELECT status, owner_pid FROM run WHERE id = ?", run);
    row.executeStep();
    const bool running = row.getColumn(0).getString() == "running";
    const std::int64_t pid = row.getColumn(1).getInt64();
    row.reset();
    const bool mine = pid == this_process().pid;
    if (running && !mine && db_->owner_state(run) == ProcessState::alive) {
      throw Error(ErrorKind::input,
                  fmt::format("run {} is being measured by process {}; wait for it or end it first",
                              run_id, pid));
    }
    db_->interrupt(run, "left unfinished when the run was resumed");
    db_->own(run);
    db_->event(run, std::nullopt, "resumed", fmt::format("process {}", this_process().pid));
  });
}

void Store::add_event(const std::string& run_id, std::optional<std::int64_t> launch,
                      const std::string& kind, const std::string& message) {
  db_->write("storing an event", [&] { db_->event(db_->run_row(run_id), launch, kind, message); });
}

bool Store::import_run(const ForeignRun& run) { return insert_foreign_run(*db_, run); }

MergeSummary Store::merge(const std::string& other_path) {
  return merge_database(*db_, other_path);
}

int Store::next_attempt(const std::string& run_id, const std::string& group_id, int block) const {
  return db_->read("counting attempts", [&] {
    auto row = db_->statement(
        "SELECT coalesce(max(attempt) + 1, 0) FROM launch WHERE group_id = ? AND block = ?",
        db_->group_row(run_id, group_id), block);
    row.executeStep();
    return row.getColumn(0).getInt();
  });
}

std::set<std::string> Store::planned_groups(const std::string& run_id) const {
  return db_->read("reading a run's plan", [&] {
    std::set<std::string> keys;
    auto rows = db_->statement("SELECT key FROM plan_group WHERE run_id = ?", db_->run_row(run_id));
    while (rows.executeStep()) keys.insert(rows.getColumn(0).getString());
    return keys;
  });
}

std::set<LaunchKey> Store::finished_launches(const std::string& run_id) const {
  return db_->read("reading finished launches", [&] {
    std::set<LaunchKey> keys;
    auto rows = db_->statement(
        "SELECT g.key, l.block FROM launch l JOIN plan_group g ON g.id = l.group_id "
        "WHERE g.run_id = ? AND l.status = 'ok'",
        db_->run_row(run_id));
    while (rows.executeStep()) {
      keys.insert({rows.getColumn(0).getString(), rows.getColumn(1).getInt()});
    }
    return keys;
  });
}

std::vector<SettledBatch> Store::settled_batches(const std::string& run_id) const {
  return db_->read("reading the calls of samples", [&] {
    std::vector<SettledBatch> batches;
    auto rows = db_->statement(
        "SELECT g.key, c.key, m.batch, min(m.id) FROM plan_group g "
        "JOIN run_cell c ON c.group_id = g.id JOIN measurement m ON m.cell_id = c.id "
        "JOIN launch l ON l.id = m.launch_id WHERE g.run_id = ? AND l.status = 'ok' "
        "AND m.status = 'ok' AND m.batch IS NOT NULL GROUP BY c.id ORDER BY 4",
        db_->run_row(run_id));
    while (rows.executeStep())
      batches.push_back({rows.getColumn(0).getString(), rows.getColumn(1).getString(),
                         rows.getColumn(2).getInt()});
    return batches;
  });
}

std::vector<CellMedians> Store::launch_medians(const std::string& run_id) const {
  return db_->read("reading launch medians", [&] {
    std::vector<CellMedians> cells;
    auto rows = db_->statement(
        "SELECT g.key, c.key, m.median_us FROM plan_group g JOIN run_cell c ON c.group_id = g.id "
        "JOIN measurement m ON m.cell_id = c.id JOIN launch l ON l.id = m.launch_id "
        "WHERE g.run_id = ? AND l.status = 'ok' AND m.status = 'ok' AND m.median_us IS NOT NULL "
        "ORDER BY c.id, l.block",
        db_->run_row(run_id));
    while (rows.executeStep()) {
      const std::string cell = rows.getColumn(1).getString();
      if (cells.empty() || cells.back().cell_id != cell)
        cells.push_back({rows.getColumn(0).getString(), cell, {}});
      cells.back().median_us.push_back(rows.getColumn(2).getDouble());
    }
    return cells;
  });
}

std::optional<std::string> Store::unfinished_run(const std::string& spec_text,
                                                 const std::vector<std::string>& overrides) const {
  return db_->read("looking for an unfinished run", [&]() -> std::optional<std::string> {
    auto rows = db_->statement(
        "SELECT r.uuid, r.id, r.status, r.owner_pid, r.owner_host "
        "FROM run r JOIN experiment e ON e.id = r.experiment_id "
        "WHERE e.sha256 = ? AND (r.status <> 'complete' OR EXISTS (SELECT 1 FROM plan_group g "
        "JOIN launch l ON l.group_id = g.id WHERE g.run_id = r.id AND l.status IN "
        "('failed', 'timed_out') AND NOT "
        "EXISTS (SELECT 1 FROM launch k WHERE k.group_id = l.group_id AND k.block = l.block AND "
        "k.status = 'ok'))) ORDER BY r.id DESC",
        experiment_digest(spec_text, overrides));
    std::string busy;
    while (rows.executeStep()) {
      const auto uuid = rows.getColumn(0).getString();
      const bool running = rows.getColumn(2).getString() == "running";
      const auto owner =
          running ? db_->owner_state(rows.getColumn(1).getInt64()) : ProcessState::dead;
      if (owner == ProcessState::dead) return uuid;
      if (busy.empty())
        busy =
            why_not_resumed(uuid, rows.getColumn(1).getInt64(), owner, rows.getColumn(3).getInt64(),
                            rows.getColumn(4).getString(), db_->path());
    }
    if (!busy.empty()) throw Error(ErrorKind::input, busy);
    return std::nullopt;
  });
}

}  // namespace dynamiccl
