#include "orchestrator/run/stored_decisions.hpp"

#include <filesystem>
#include <map>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/wire/decisions_file.hpp"

namespace dynamiccl {
namespace fs = std::filesystem;

DecisionInfo decision_info(const DecisionRecord& record) {
  DecisionInfo row;
  row.task_key = record.task_key;
  row.environment = record.environment;
  row.regime = record.regime;
  row.step = record.step;
  row.kind = record.kind;
  row.epoch = record.epoch;
  row.arm = record.arm;
  row.propensity = record.propensity;
  row.state_json = record.state.dump();
  row.candidates_json = record.candidates.dump();
  row.guard = record.guard;
  row.asked_json = record.asked.dump();
  if (!record.applied.is_null()) row.applied_json = record.applied.dump();
  row.calls = record.calls;
  row.time_us = record.time_us;
  row.reference_us = record.reference_us;
  row.reward = record.reward;
  if (!record.reward_terms.is_null()) row.reward_json = record.reward_terms.dump();
  return row;
}

void store_decisions(const PreparedLaunch& prepared, const PlannedGroup& group,
                     const LaunchEnd& end, const std::string& db, const std::string& run_id,
                     std::int64_t launch) {
  const std::string path = prepared.folder + "/" + kDecisionsFile;
  std::error_code none;
  if (db.empty() || !fs::exists(path, none)) return;
  std::map<std::string, std::vector<DecisionInfo>> by_agent;
  for (const DecisionRecord& record : read_decisions(path)) {
    DecisionInfo row = decision_info(record);
    row.environment = group.environment;
    if (!end.regime_id.empty()) row.regime = end.regime_id;
    row.launch = launch;
    by_agent[record.author.agent].push_back(std::move(row));
  }
  if (by_agent.empty()) return;
  DecisionLog log = [&] {
    try {
      return DecisionLog(db);
    } catch (const Error& error) {
      // The run has opened it before: what it may no longer open is no mistake in its name.
      throw Error(error.kind() == ErrorKind::input ? ErrorKind::environment : error.kind(),
                  error.what());
    }
  }();
  for (const auto& [agent, rows] : by_agent)
    log.add(log.begin({run_id, "job", agent, "", prepared.config.seed, "{}"}), rows);
}

}  // namespace dynamiccl
