#include "reports/model/trust.hpp"
#include "reports/page/section.hpp"

namespace dynamiccl {

nlohmann::json coverage_data(const PageContext& page) {
  using nlohmann::json;
  const json counts = table_json(page.reader.query(
      "SELECT environment, backend, status, count(*) AS cells FROM v_cell WHERE run_row = ?1 "
      "GROUP BY environment, backend, status ORDER BY environment, backend, status",
      {page.run_row}));
  const json missing = table_json(page.reader.query(
      "SELECT status, reason, count(*) AS cells, "
      "group_concat(DISTINCT environment) AS environments, "
      "group_concat(DISTINCT backend) AS backends, "
      "group_concat(DISTINCT architecture || ' ' || collective) AS operations, "
      "group_concat(DISTINCT ranks) AS ranks FROM v_cell "
      "WHERE run_row = ?1 AND status <> 'ok' GROUP BY status, reason ORDER BY cells DESC",
      {page.run_row}));
  const json attempts =
      table_json(page.reader.query("SELECT launch_status AS status, reason, count(*) AS attempts, "
                                   "group_concat(DISTINCT environment) AS environments, "
                                   "group_concat(DISTINCT backend) AS backends FROM v_launch "
                                   "WHERE run_row = ?1 AND launch_status NOT IN ('ok', 'running') "
                                   "GROUP BY launch_status, reason ORDER BY attempts DESC",
                                   {page.run_row}));
  const json events = table_json(
      page.reader.query("SELECT kind, count(*) AS times, min(message) AS example FROM event "
                        "WHERE run_id = ?1 GROUP BY kind ORDER BY times DESC",
                        {page.run_row}));
  const auto unverified = unverified_cells(page.reader, page.run);
  return {{"counts", counts},
          {"unverified", unverified.cells},
          {"measurements", unverified.of},
          {"missing", missing},
          {"attempts", attempts},
          {"events", events},
          {"trust", trust_notes(page.reader, page.run, page.figures)}};
}

}  // namespace dynamiccl
