#include "db/decision_log.hpp"

#include <tuple>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"
#include "db/migrations.hpp"
#include "db/statements.hpp"

namespace dynamiccl {

class DecisionLog::Impl {
 public:
  explicit Impl(const std::string& path) : path_(path), db_(open_for_writing(path)) {
    migrate(db_, path_, current_schema());
  }
  std::string path_;
  SQLite::Database db_;
};

namespace {

void bind_text(SQLite::Statement& row, int place, const std::string& text) {
  if (!text.empty()) row.bind(place, text);
}

void bind_number(SQLite::Statement& row, int place, const std::optional<double>& number) {
  if (number) row.bind(place, *number);
}

void bind_decision(SQLite::Statement& row, std::int64_t tuning, const DecisionInfo& decision) {
  row.reset();
  row.clearBindings();
  row.bind(1, tuning);
  row.bind(2, decision.task_key);
  row.bind(3, decision.environment);
  row.bind(4, decision.regime);
  row.bind(5, decision.step);
  row.bind(6, decision.kind);
  row.bind(7, static_cast<std::int64_t>(decision.epoch));
  row.bind(8, decision.arm);
  row.bind(9, decision.propensity);
  row.bind(10, json_or_empty(decision.state_json));
  row.bind(11, json_or_empty(decision.candidates_json));
  row.bind(12, decision.guard);
  row.bind(13, json_or_empty(decision.asked_json));
  bind_text(row, 14, decision.applied_json);
  row.bind(15, decision.calls);
  bind_number(row, 16, decision.time_us);
  bind_number(row, 17, decision.reference_us);
  bind_number(row, 18, decision.reward);
  bind_text(row, 19, decision.reward_json);
  if (decision.launch) row.bind(20, *decision.launch);
}

std::int64_t insert_tuning(SQLite::Database& db, const std::string& path,
                           const TuningInfo& tuning) {
  SQLite::Statement row(db,
                        "INSERT INTO tuning(run_id, mode, agent, policy_version, seed,"
                        " options_json, started_utc)"
                        " SELECT id, ?2, ?3, ?4, ?5, ?6, ?7 FROM run WHERE uuid = ?1");
  row.bind(1, tuning.run_id);
  row.bind(2, tuning.mode);
  row.bind(3, tuning.agent);
  bind_text(row, 4, tuning.policy_version);
  row.bind(5, std::to_string(tuning.seed));
  row.bind(6, json_or_empty(tuning.options_json));
  row.bind(7, now_utc());
  if (row.exec() != 1)
    throw Error(ErrorKind::input, "database " + path + ": has no run \"" + tuning.run_id +
                                      "\"; `dynamiccl list` shows its runs");
  return db.getLastInsertRowid();
}

void insert_decisions(SQLite::Database& db, std::int64_t tuning,
                      const std::vector<DecisionInfo>& decisions) {
  SQLite::Statement row(
      db,
      "INSERT INTO decision(tuning_id, task_key, environment, regime, step, kind, epoch, arm,"
      " propensity, state_json, candidates_json, guard, asked_json, applied_json, calls, time_us,"
      " reference_us, reward, reward_json, launch_id)"
      " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  for (const DecisionInfo& decision : decisions) {
    bind_decision(row, tuning, decision);
    row.exec();
  }
}

/// Two choices are one where all of these are equal; times are compared to the last bit.
using ChoiceMarks = std::tuple<std::string, std::int64_t, std::string, std::string, std::int64_t,
                               std::string, std::optional<double>>;

ChoiceMarks marks_of(const DecisionInfo& decision) {
  return {decision.task_key, decision.step,       decision.kind,   decision.arm,
          decision.calls,    decision.asked_json, decision.time_us};
}

ChoiceMarks stored_marks(SQLite::Statement& row) {
  const auto time = row.getColumn(6);
  return {row.getColumn(0).getString(),
          row.getColumn(1).getInt64(),
          row.getColumn(2).getString(),
          row.getColumn(3).getString(),
          row.getColumn(4).getInt64(),
          row.getColumn(5).getString(),
          time.isNull() ? std::nullopt : std::optional(time.getDouble())};
}

/// What a run holds of one author's choices.
struct StoredPart {
  std::int64_t tuning = 0;  ///< row; 0 = nothing
  std::size_t rows = 0;
  bool same = true;    ///< as far as both go
  bool timed = false;  ///< of what both have, something was measured
};

StoredPart stored_part(SQLite::Database& db, const std::string& run_id,
                       const StoredSearch& search) {
  const auto& [tuning, decisions] = search;
  SQLite::Statement rows(
      db,
      "SELECT d.task_key, d.step, d.kind, d.arm, d.calls, d.asked_json, d.time_us, t.id FROM "
      "decision d JOIN tuning t ON t.id = d.tuning_id JOIN run r ON r.id = t.run_id WHERE r.uuid = "
      "? AND t.agent = ? AND coalesce(t.policy_version, '') = ? AND t.seed = ? ORDER BY d.id");
  rows.bind(1, run_id);
  rows.bind(2, tuning.agent);
  rows.bind(3, tuning.policy_version);
  rows.bind(4, std::to_string(tuning.seed));
  StoredPart part;
  for (; rows.executeStep(); ++part.rows) {
    part.tuning = rows.getColumn(7).getInt64();
    if (part.rows >= decisions.size()) continue;
    const DecisionInfo& decision = decisions[part.rows];
    part.same = part.same && stored_marks(rows) == marks_of(decision);
    part.timed = part.timed || decision.time_us.has_value();
  }
  return part;
}

/// A leader's file only grows: what was stored of it is how it begins.
bool is_file_of_run(SQLite::Database& db, const std::string& run_id,
                    const std::vector<StoredSearch>& searches, bool same_place) {
  bool known = false;
  for (const StoredSearch& search : searches) {
    const StoredPart part = stored_part(db, run_id, search);
    if (!part.same) return false;
    // Of jobs that were alike and measured nothing, one would be taken for the other.
    known = known || (part.rows > 0 && (same_place || part.timed));
  }
  return known;
}

void note_growth(SQLite::Database& db, const ForeignRun& run) {
  SQLite::Statement source(db,
                           "UPDATE imported_run SET sha256 = ?2, imported_utc = ?3, source_json = "
                           "?4 WHERE run_id = (SELECT id FROM run WHERE uuid = ?1)");
  source.bind(1, run.run.id);
  source.bind(2, run.sha256);
  source.bind(3, now_utc());
  source.bind(4, json_or_empty(run.source_json));
  source.exec();
  SQLite::Statement end(db, "UPDATE run SET ended_utc = max(ended_utc, ?2) WHERE uuid = ?1");
  end.bind(1, run.run.id);
  end.bind(2, run.started_utc);
  end.exec();
}

}  // namespace

DecisionLog::DecisionLog(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
DecisionLog::~DecisionLog() = default;

std::int64_t DecisionLog::begin(const TuningInfo& tuning) {
  return explained(impl_->path_, "storing a search", [&] {
    SQLite::Transaction transaction(impl_->db_, SQLite::TransactionBehavior::IMMEDIATE);
    const std::int64_t id = insert_tuning(impl_->db_, impl_->path_, tuning);
    transaction.commit();
    return id;
  });
}

void DecisionLog::add(std::int64_t tuning, const std::vector<DecisionInfo>& decisions) {
  explained(impl_->path_, "storing decisions", [&] {
    SQLite::Transaction transaction(impl_->db_, SQLite::TransactionBehavior::IMMEDIATE);
    insert_decisions(impl_->db_, tuning, decisions);
    transaction.commit();
  });
}

std::string DecisionLog::run_of_file(const std::vector<StoredSearch>& searches,
                                     const std::string& source, const std::string& sha256) {
  return explained(impl_->path_, "looking for a leader's choices", [&]() -> std::string {
    SQLite::Statement runs(
        impl_->db_,
        "SELECT r.uuid, i.source, i.sha256 FROM imported_run i JOIN run r ON r.id = "
        "i.run_id WHERE i.format = 'dynamiccl' AND json_type(i.source_json, "
        "'$.decisions') IS NOT NULL ORDER BY r.id");
    while (runs.executeStep()) {
      const std::string run = runs.getColumn(0).getString();
      const bool same_place = runs.getColumn(1).getString() == source;
      if (runs.getColumn(2).getString() == sha256 ||
          is_file_of_run(impl_->db_, run, searches, same_place))
        return run;
    }
    return "";
  });
}

bool DecisionLog::has_choices(const std::string& run_id) {
  return explained(impl_->path_, "looking for a leader's choices", [&] {
    SQLite::Statement known(impl_->db_,
                            "SELECT 1 FROM tuning JOIN run ON run.id = tuning.run_id"
                            " WHERE run.uuid = ?");
    known.bind(1, run_id);
    return known.executeStep();
  });
}

std::size_t DecisionLog::add_new(const ForeignRun& run, const std::vector<StoredSearch>& searches) {
  return explained(impl_->path_, "storing decisions", [&] {
    SQLite::Transaction transaction(impl_->db_, SQLite::TransactionBehavior::IMMEDIATE);
    std::size_t added = 0;
    for (const auto& [tuning, decisions] : searches) {
      const StoredPart part = stored_part(impl_->db_, run.run.id, {tuning, decisions});
      if (part.rows >= decisions.size()) continue;
      const std::int64_t row =
          part.tuning != 0 ? part.tuning : insert_tuning(impl_->db_, impl_->path_, tuning);
      insert_decisions(
          impl_->db_, row,
          {decisions.begin() + static_cast<std::ptrdiff_t>(part.rows), decisions.end()});
      added += decisions.size() - part.rows;
    }
    if (added > 0) note_growth(impl_->db_, run);
    transaction.commit();
    return added;
  });
}

}  // namespace dynamiccl
