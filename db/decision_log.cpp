#include "db/decision_log.hpp"

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

bool DecisionLog::add_all(const std::string& run_id, const std::vector<StoredSearch>& searches) {
  return explained(impl_->path_, "storing decisions", [&] {
    SQLite::Transaction transaction(impl_->db_, SQLite::TransactionBehavior::IMMEDIATE);
    SQLite::Statement known(impl_->db_,
                            "SELECT 1 FROM tuning JOIN run ON run.id = tuning.run_id"
                            " WHERE run.uuid = ?");
    known.bind(1, run_id);
    if (known.executeStep()) return false;
    for (const auto& [tuning, decisions] : searches)
      insert_decisions(impl_->db_, insert_tuning(impl_->db_, impl_->path_, tuning), decisions);
    transaction.commit();
    return true;
  });
}

}  // namespace dynamiccl
