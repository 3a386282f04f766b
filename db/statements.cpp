#include "db/statements.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/wire/work_settings.hpp"
#include "db/draft_database.hpp"
#include "db/migrations.hpp"

namespace dynamiccl {

using nlohmann::json;

namespace {

RankAggregation aggregation_of(const std::string& protocol_json, const std::string& run_json) {
  // The ranks' own run.json knows best; a run's protocol stands in where it is missing.
  for (const auto& text : {run_json, protocol_json}) {
    const json document = json_or_discarded(text);
    if (!document.is_object()) continue;
    const json& protocol = document.contains("protocol") ? document["protocol"] : document;
    if (!protocol.is_object() || !protocol.contains("rank_aggregation")) continue;
    const json& name = protocol["rank_aggregation"];
    if (name.is_string()) return parse_named<RankAggregation>(name.get<std::string>());
  }
  return RankAggregation::max;
}

std::optional<double> bus_factor(const CellInfo& cell, int ranks) {
  const auto known = find_named<Collective>(cell.collective);
  if (!known || *known == Collective::training || facts_of(*known).size == SizeRule::nothing)
    return std::nullopt;
  return bus_factor_of(*known, ranks, cell.knobs_json);
}

std::int64_t size_column(std::uint64_t bytes) {
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  if (bytes > most) {
    throw Error(ErrorKind::input, fmt::format("a size of {} bytes cannot be stored", bytes));
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::string now_utc() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto ms = duration_cast<milliseconds>(now.time_since_epoch()).count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(now)), ms);
}

std::string as_json(const std::vector<std::string>& list) {
  return json(list).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string json_or_empty(const std::string& document) {
  return document.empty() ? "{}" : document;
}

std::string experiment_digest(const std::string& spec_text,
                              const std::vector<std::string>& overrides) {
  return sha256_hex(
      json::array({spec_text, overrides}).dump(-1, ' ', false, json::error_handler_t::replace));
}

Statements::Statements(SQLite::Database db, std::string path)
    : path_(std::move(path)), db_(std::move(db)) {
  const EndedBySignals opening(db_);
  migrate(db_, path_, current_schema());
  // Its statements can only be prepared once the tables exist.
  opened(path_, [&] { ingest_ = std::make_unique<LaunchIngest>(db_); });
  // Of a file that may not be written this is the first step that writes where a run was killed.
  explained(
      path_, "looking for unfinished runs",
      [&] {
        SQLite::Transaction transaction(db_, SQLite::TransactionBehavior::IMMEDIATE);
        recover_left_overs();
        transaction.commit();
      },
      ErrorKind::input);
}

Statements::Statements(const std::string& path) : Statements(open_for_writing(path), path) {
  remove_left_merging(path);
  opened(path_, [&] { guard_ = std::make_unique<FileGuard>(db_, path_); });
}

Statements::~Statements() {
  ingest_.reset();
  if (guard_) guard_->before_close();
}

void Statements::insert_run(const RunInfo& run) {
  auto same = statement("SELECT 1 FROM run WHERE uuid = ?", run.id);
  if (same.executeStep()) {
    throw Error(ErrorKind::data,
                fmt::format("database {}: run {} is already stored; continue it with "
                            "`dynamiccl run --resume`",
                            path_, run.id));
  }
  const std::int64_t experiment = insert_or_find(
      "INSERT INTO experiment(sha256, spec_text, overrides_json) VALUES (?,?,?) "
      "ON CONFLICT (sha256) DO NOTHING",
      "SELECT id FROM experiment WHERE sha256 = ?",
      {experiment_digest(run.spec_text, run.overrides), run.spec_text, as_json(run.overrides)});
  execute(
      "INSERT INTO run(uuid, experiment_id, name, spec_path, status, started_utc, seed, argv_json,"
      " tool_version, host_json, protocol_json, owner_host, owner_boot_id, owner_pid,"
      " owner_pid_namespace, owner_start_ticks, replay_of)"
      " VALUES (?,?,?,?,'running',?,?,?,?,?,?,'','',0,0,0,nullif(?,''))",
      run.id, experiment, run.name, run.spec_path, now_utc(), std::to_string(run.seed),
      as_json(run.argv), run.tool_version, json_or_empty(run.host_json),
      json_or_empty(run.protocol_json), run.replay_of);
}

void Statements::own(std::int64_t run) const {
  const ProcessIdentity me = this_process();
  execute(
      "UPDATE run SET status = 'running', ended_utc = NULL, owner_host = ?, owner_boot_id = ?,"
      " owner_pid = ?, owner_pid_namespace = ?, owner_start_ticks = ? WHERE id = ?",
      me.host, me.boot_id, me.pid, me.pid_namespace, me.start_ticks, run);
}

ProcessState Statements::owner_state(std::int64_t run) const {
  auto row = statement(
      "SELECT owner_host, owner_boot_id, owner_pid, owner_pid_namespace, owner_start_ticks "
      "FROM run WHERE id = ?",
      run);
  if (!row.executeStep()) return ProcessState::dead;
  return state_of({row.getColumn(0).getString(), row.getColumn(1).getString(),
                   row.getColumn(2).getInt64(), row.getColumn(3).getInt64(),
                   row.getColumn(4).getInt64()});
}

void Statements::insert_groups(std::int64_t run, const std::vector<GroupInfo>& groups,
                               std::map<std::string, std::pair<std::int64_t, int>>& rows) {
  for (const auto& group : groups) {
    const std::string profile = json_or_empty(group.profile_json);
    const std::int64_t profile_row = insert_or_find(
        "INSERT INTO profile(sha256, environment, profile_json) VALUES (?,?,?) "
        "ON CONFLICT (sha256) DO NOTHING",
        "SELECT id FROM profile WHERE sha256 = ?",
        {sha256_hex(group.environment + "\n" + profile), group.environment, profile});
    execute(
        "INSERT INTO plan_group(run_id, key, profile_id, backend, architecture, ranks, knobs_json)"
        " VALUES (?,?,?,?,?,?,?)",
        run, group.id, profile_row, group.backend, group.architecture, group.ranks,
        json_or_empty(group.knobs_json));
    rows[group.id] = {db_.getLastInsertRowid(), group.ranks};
  }
}

void Statements::insert_cells(
    const std::vector<CellInfo>& cells,
    const std::map<std::string, std::pair<std::int64_t, int>>& groups) const {
  SQLite::Statement insert(
      db_,
      "INSERT INTO run_cell(group_id, key, collective, size_bytes, datatype, algorithm, in_place,"
      " knobs_json, busbw_factor, unsupported_reason) VALUES (?,?,?,?,?,?,?,?,?,?)");
  for (const auto& cell : cells) {
    const auto group = groups.find(cell.group_id);
    if (group == groups.end()) {
      throw Error(ErrorKind::data, fmt::format("cell {} names group \"{}\", which is not among the "
                                               "run's groups; nothing was stored",
                                               cell.id, cell.group_id));
    }
    insert.reset();
    insert.clearBindings();
    insert.bind(1, group->second.first);
    insert.bind(2, cell.id);
    insert.bind(3, cell.collective);
    insert.bind(4, size_column(cell.size_bytes));
    insert.bind(5, cell.datatype);
    insert.bind(6, cell.algorithm);
    insert.bind(7, cell.in_place ? 1 : 0);
    insert.bind(8, json_or_empty(cell.knobs_json));
    if (const auto factor = bus_factor(cell, group->second.second)) {
      insert.bind(9, *factor);
    }
    if (!cell.unsupported_reason.empty()) insert.bind(10, cell.unsupported_reason);
    insert.exec();
  }
}

void Statements::event(std::int64_t run, std::optional<std::int64_t> launch,
                       const std::string& kind, const std::string& message) const {
  SQLite::Statement insert(
      db_, "INSERT INTO event(run_id, launch_id, at_utc, kind, message) VALUES (?,?,?,?,?)");
  insert.bind(1, run);
  if (launch) insert.bind(2, *launch);
  insert.bind(3, now_utc());
  insert.bind(4, kind);
  insert.bind(5, message);
  insert.exec();
}

void Statements::interrupt(std::int64_t run, const std::string& why) const {
  execute(
      "UPDATE launch SET status = 'interrupted', reason = ? WHERE status = 'running' AND group_id "
      "IN (SELECT id FROM plan_group WHERE run_id = ?)",
      why, run);
  execute("UPDATE run SET status = 'interrupted' WHERE id = ? AND status = 'running'", run);
}

void Statements::recover_left_overs() const {
  std::vector<std::pair<std::int64_t, std::int64_t>> running;
  SQLite::Statement rows(db_, "SELECT id, owner_pid FROM run WHERE status = 'running'");
  while (rows.executeStep()) {
    running.emplace_back(rows.getColumn(0).getInt64(), rows.getColumn(1).getInt64());
  }
  rows.reset();
  for (const auto& [run, pid] : running) {
    if (owner_state(run) != ProcessState::dead) continue;
    const auto why =
        fmt::format("its writer, process {}, ended before the outcome was stored", pid);
    interrupt(run, why);
    event(run, std::nullopt, "interrupted", why);
  }
}

LaunchIngest::Launch Statements::unfinished_launch(std::int64_t launch) const {
  auto row = statement(
      "SELECT g.run_id, g.id, g.ranks, r.protocol_json, l.run_config_json, l.status FROM launch l "
      "JOIN plan_group g ON g.id = l.group_id JOIN run r ON r.id = g.run_id WHERE l.id = ?",
      launch);
  if (!row.executeStep()) {
    throw Error(ErrorKind::data, fmt::format("database {}: has no launch {}", path_, launch));
  }
  if (const auto status = row.getColumn(5).getString(); status != "running") {
    throw Error(ErrorKind::data,
                fmt::format("database {}: launch {} is already stored as {}; its records were not "
                            "stored twice",
                            path_, launch, status));
  }
  return {launch, row.getColumn(0).getInt64(), row.getColumn(1).getInt64(),
          row.getColumn(2).getInt(),
          aggregation_of(row.getColumn(3).getString(), row.getColumn(4).getString())};
}

void Statements::refuse_second_measurement(const LaunchIngest::Launch& launch) const {
  auto other = statement(
      "SELECT o.uuid FROM launch l JOIN launch o ON o.group_id = l.group_id AND o.block = l.block "
      "WHERE l.id = ? AND o.status = 'ok'",
      launch.id);
  if (!other.executeStep()) return;
  throw Error(ErrorKind::data,
              fmt::format("database {}: launch {} already measured this group and block; "
                          "a second one was not stored",
                          path_, other.getColumn(0).getString()));
}

void Statements::close_launch(const LaunchIngest::Launch& launch, const LaunchEnd& end) {
  std::optional<std::int64_t> regime;
  if (!end.regime_id.empty()) {
    regime =
        insert_or_find("INSERT INTO regime(key, name) VALUES (?,?) ON CONFLICT (key) DO NOTHING",
                       "SELECT id FROM regime WHERE key = ?", {end.regime_id, end.regime_name});
  }
  SQLite::Statement update(
      db_,
      "UPDATE launch SET status = ?, reason = ?, ended_utc = ?, duration_s = ?, exit_code = ?,"
      " signal = ?, noise_during_json = ?, stderr_tail = ?, regime_id = ?, regime_json = ?,"
      " noise_flags_json = ? WHERE id = ?");
  const auto text = [&](int index, const std::string& value) {
    if (!value.empty()) update.bind(index, value);
  };
  update.bind(1, std::string(name_of(end.status)));
  text(2, end.reason);
  update.bind(3, now_utc());
  update.bind(4, end.duration_s);
  update.bind(5, end.exit_code);
  update.bind(6, end.signal);
  text(7, end.noise_json);
  text(8, end.stderr_tail);
  if (regime) update.bind(9, *regime);
  text(10, end.regime_json);
  text(11, end.noise_flags_json);
  update.bind(12, launch.id);
  update.exec();
}

}  // namespace dynamiccl
