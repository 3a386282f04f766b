#include "db/foreign_run.hpp"

#include <fmt/format.h>

#include "db/statements.hpp"

namespace dynamiccl {
namespace {

/// Texts that are unknown are NULL.
void bind_known(SQLite::Statement& statement, int index, const std::string& text) {
  if (!text.empty()) statement.bind(index, text);
}

std::string launch_uuid(const ForeignRun& run, const ForeignLaunch& launch) {
  return fmt::format("{}-{}-{}", run.run.id, launch.group_id, launch.block);
}

void insert_figure(const Statements& db, const ForeignRun& foreign, const ForeignFigure& figure,
                   std::int64_t launch, std::int64_t group) {
  // A mean over calls is a sample of a batch of that many; there is nothing to take percentiles of.
  SQLite::Statement insert(
      db.db(),
      "INSERT INTO measurement(launch_id, cell_id, status, reason, cadence, batch, barrier,"
      " rank_aggregation, checked, wrong, n, median_us, mean_us) SELECT ?1, id, ?4, ?5, 'batched',"
      " ?6, ?7, ?8, ?12, ?9, ?10, ?11, ?11 FROM run_cell WHERE group_id = ?2 AND key = ?3");
  insert.bind(1, launch);
  insert.bind(2, group);
  insert.bind(3, figure.cell_id);
  insert.bind(4, std::string(name_of(figure.status)));
  bind_known(insert, 5, figure.reason);
  insert.bind(6, figure.calls);
  bind_known(insert, 7, foreign.barrier);
  insert.bind(8, std::string(name_of(foreign.aggregation)));
  insert.bind(9, static_cast<std::int64_t>(figure.wrong));
  insert.bind(10, figure.n);
  if (figure.time_us) insert.bind(11, *figure.time_us);
  insert.bind(12, static_cast<std::int64_t>(figure.checked));
  DYN_ASSERT(insert.exec() == 1, "an imported figure has its cell in the plan");
  if (figure.reported_json.empty()) return;
  db.execute(
      "INSERT INTO imported_measurement(measurement_id, reported_json, resolution_us) "
      "VALUES (?, ?, nullif(?, 0.0))",
      static_cast<std::int64_t>(db.db().getLastInsertRowid()), figure.reported_json,
      figure.resolution_us);
}

void insert_launch(const Statements& db, const ForeignRun& foreign, const ForeignLaunch& launch,
                   std::int64_t group) {
  db.execute(
      "INSERT INTO launch(uuid, group_id, block, attempt, position, status, started_utc, ended_utc,"
      " argv_json, run_config_json, environment_json, container_json, noise_before_json)"
      " VALUES (?,?,?,0,0,'ok',?,?,?,'{}',?,'{}','{}')",
      launch_uuid(foreign, launch), group, launch.block, foreign.started_utc, foreign.started_utc,
      as_json(launch.argv), json_or_empty(launch.environment_json));
  const std::int64_t row = db.db().getLastInsertRowid();
  for (const auto& figure : launch.figures) insert_figure(db, foreign, figure, row, group);
}

}  // namespace

bool insert_foreign_run(Statements& db, const ForeignRun& foreign) {
  return db.write(
      "storing the tables of " + foreign.source,
      [&] {
        if (db.statement("SELECT 1 FROM run WHERE uuid = ?", foreign.run.id).executeStep())
          return false;
        db.insert_run(foreign.run);
        const std::int64_t run = db.run_row(foreign.run.id);
        db.own(run);
        std::map<std::string, std::pair<std::int64_t, int>> groups;
        db.insert_groups(run, foreign.groups, groups);
        db.insert_cells(foreign.cells, groups);
        for (const auto& launch : foreign.launches)
          insert_launch(db, foreign, launch, groups.at(launch.group_id).first);
        SQLite::Statement about(
            db.db(),
            "INSERT INTO imported_run(run_id, format, source, sha256, imported_utc, source_json) "
            "VALUES (?,?,?,?,?,?)");
        about.bind(1, run);
        about.bind(2, foreign.format);
        about.bind(3, foreign.source);
        bind_known(about, 4, foreign.sha256);
        about.bind(5, now_utc());
        about.bind(6, json_or_empty(foreign.source_json));
        about.exec();
        db.execute(
            "UPDATE run SET status = 'complete', started_utc = ?, ended_utc = ? WHERE id = ?",
            foreign.started_utc, foreign.started_utc, run);
        return true;
      },
      ErrorKind::input);
}

}  // namespace dynamiccl
