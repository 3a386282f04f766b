#include "reports/queries/training/synchronisation_rows.hpp"

#include <fmt/format.h>

#include <map>

#include "core/vocabulary/text.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {
namespace {

struct SentShare {
  std::optional<double> busiest_over_mean;
  std::optional<double> rounds_per_step;
};

std::string key_of(const TableView& rows, std::size_t i) {
  return join({rows.text(i, "environment"), rows.text(i, "backend"),
               std::to_string(rows.integer(i, "workers")), rows.text(i, "method"),
               rows.text(i, "settings")},
              "|");
}

/// By environment, backend, workers, method and settings.
std::map<std::string, SentShare> sent_shares(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.environment, v.backend, v.workers, v.method, v.settings, "
      "max(t.wire_bytes) / nullif(avg(t.wire_bytes), 0) AS busiest, "
      "avg(json_extract(t.details_json, '$.accuracies[#-1][0]') * 1.0 / "
      "json_extract(t.details_json, '$.worker_steps')) AS rounds "
      "FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row "
      "WHERE v.run_row = ?1 AND v.counts GROUP BY v.environment, v.backend, v.workers, v.method, "
      "v.settings",
      {run});
  const TableView rows(table);
  std::map<std::string, SentShare> shares;
  for (std::size_t i = 0; i < rows.size(); ++i)
    shares[key_of(rows, i)] = {rows.real(i, "busiest"), rows.real(i, "rounds")};
  return shares;
}

}  // namespace

std::vector<WaitedCell> waited_cells(const Reader& reader, std::int64_t run) {
  QueryScope scope;
  scope.runs = {run_uuid_of(reader, run)};
  const Table table = named_query(reader, "time_to_target", scope);
  const TableView rows(table);
  const auto shares = sent_shares(reader, run);
  std::vector<WaitedCell> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    WaitedCell one;
    one.environment = rows.text(i, "environment");
    one.backend = rows.text(i, "backend");
    one.architecture = rows.text(i, "architecture");
    one.model = rows.text(i, "model");
    one.batch = rows.integer(i, "batch");
    one.workers = rows.integer(i, "workers");
    one.task = rows.text(i, "task");
    one.method = rows.text(i, "method");
    one.synchronisation = rows.text(i, "synchronisation");
    one.compression = rows.text(i, "compression");
    one.settings = rows.text(i, "settings");
    one.launches = rows.integer(i, "launches");
    if (one.settings.find("\"target\"") != std::string::npos) one.reached = rows.real(i, "reached");
    one.samples = rows.real(i, "samples").value_or(0);
    one.trained_us = rows.real(i, "trained_us").value_or(0);
    one.over_plain = rows.real(i, "over_plain");
    one.beyond_plain = rows.real(i, "beyond_plain");
    one.beyond_plain_low = rows.real(i, "beyond_plain_low");
    one.beyond_plain_high = rows.real(i, "beyond_plain_high");
    if (const auto stale = rows.real(i, "most_stale"))
      one.most_stale = static_cast<std::int64_t>(*stale);
    one.consensus_distance = rows.real(i, "consensus_distance");
    one.unsent = rows.real(i, "unsent");
    one.sent_bytes = rows.real(i, "sent_bytes");
    if (const auto share = shares.find(key_of(rows, i)); share != shares.end()) {
      one.busiest_over_mean = share->second.busiest_over_mean;
      one.rounds_per_step = share->second.rounds_per_step;
    }
    one.plain = one.synchronisation == "bsp" && one.compression == "none";
    one.mode = waiting_mode(one.architecture, one.synchronisation, one.compression);
    cells.push_back(std::move(one));
  }
  return cells;
}

const WaitedCell* plain_of(const std::vector<WaitedCell>& cells, const WaitedCell& of) {
  const WaitedCell* plain = nullptr;
  for (const WaitedCell& one : cells)
    if (one.plain && one.environment == of.environment && one.backend == of.backend &&
        one.model == of.model && one.batch == of.batch && one.workers == of.workers &&
        one.task == of.task && (plain == nullptr || one.trained_us < plain->trained_us))
      plain = &one;
  return plain;
}

}  // namespace dynamiccl
