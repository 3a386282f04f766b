#include "reports/page/section.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {

// Null for a run that nobody tuned: the section is then left out.
nlohmann::json decisions_data(const PageContext& page) {
  using nlohmann::json;
  // The newest search of each agent is traced step by step; a run may hold hundreds.
  const json steps = table_json(page.reader.query(
      "SELECT t.mode, t.agent, d.environment, d.task_key AS task, d.step, d.kind, d.arm, "
      "d.time_us, d.reference_us, d.propensity, CASE WHEN d.kind <> 'final' AND d.guard = "
      "'slower-than-default' THEN 'slower-in-trial' ELSE d.guard END AS guard, d.calls "
      "FROM decision d JOIN tuning t ON t.id = d.tuning_id WHERE t.id IN "
      "(SELECT max(id) FROM tuning WHERE run_id = ?1 GROUP BY mode, agent) "
      "ORDER BY t.id, d.environment, d.task_key, d.step, d.id LIMIT 20000",
      {page.run_row}));
  if (steps.empty()) return {};
  const json choices = table_json(page.reader.query(
      "SELECT t.mode, t.agent, d.environment, d.task_key AS task, d.arm, count(*) AS searches, "
      "avg(d.time_us) AS time_us, avg(d.reference_us) AS reference_us, "
      "group_concat(DISTINCT d.guard) AS guards FROM decision d "
      "JOIN tuning t ON t.id = d.tuning_id WHERE t.run_id = ?1 AND d.kind = 'final' "
      "GROUP BY t.mode, t.agent, d.environment, d.task_key, d.arm "
      "ORDER BY d.environment, d.task_key, t.mode, t.agent, searches DESC LIMIT 5000",
      {page.run_row}));
  // How the policy in use was trained; it travels with the search's options.
  const json training = table_json(page.reader.query(
      "SELECT policy_version, json_extract(options_json, '$.training') AS training FROM tuning "
      "WHERE run_id = ?1 AND json_extract(options_json, '$.training') IS NOT NULL "
      "ORDER BY id DESC LIMIT 1",
      {page.run_row}));
  json policy;
  if (!training.empty())
    policy = {{"version", training[0]["policy_version"]},
              {"training", stored_json(training[0]["training"].get<std::string>())}};
  QueryScope scope;
  scope.runs = {page.run};
  return {{"steps", steps},
          {"choices", choices},
          {"policy", policy},
          {"regret", table_json(named_query(page.reader, "regret", scope))}};
}

}  // namespace dynamiccl
