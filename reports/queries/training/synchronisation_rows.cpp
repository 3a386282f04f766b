#include "reports/queries/training/synchronisation_rows.hpp"

#include <fmt/format.h>

#include <map>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
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

/// By environment, backend, workers, method and settings: medians over the launches.
std::map<std::string, SentShare> sent_shares(const Reader& reader, std::int64_t run) {
  // Of each launch by itself: that launches differ in what they send is no congestion.
  const Table table = reader.query(
      "SELECT v.environment, v.backend, v.workers, v.method, v.settings, "
      "max(t.wire_bytes) / nullif(avg(t.wire_bytes), 0) AS busiest, "
      "avg(json_extract(t.details_json, '$.accuracies[#-1][0]') * 1.0 / "
      "json_extract(t.details_json, '$.worker_steps')) AS rounds "
      "FROM v_training v JOIN training t ON t.measurement_id = v.measurement_row "
      "WHERE v.run_row = ?1 AND v.counts GROUP BY v.measurement_row",
      {run});
  const TableView rows(table);
  struct Launches {
    std::vector<double> busiest;
    std::vector<double> rounds;
  };
  std::map<std::string, Launches> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Launches& cell = cells[key_of(rows, i)];
    if (const auto busiest = rows.real(i, "busiest")) cell.busiest.push_back(*busiest);
    if (const auto rounds = rows.real(i, "rounds")) cell.rounds.push_back(*rounds);
  }
  const auto middle = [](const std::vector<double>& values) {
    return values.empty() ? std::nullopt : std::optional(median(values));
  };
  std::map<std::string, SentShare> shares;
  for (const auto& [key, cell] : cells) shares[key] = {middle(cell.busiest), middle(cell.rounds)};
  return shares;
}

}  // namespace

std::vector<SynchronisedCell> synchronised_cells(const Reader& reader, std::int64_t run) {
  QueryScope scope;
  scope.runs = {run_uuid_of(reader, run)};
  const Table table = named_query(reader, "time_to_target", scope);
  const TableView rows(table);
  const auto shares = sent_shares(reader, run);
  std::vector<SynchronisedCell> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SynchronisedCell one;
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
    one.carried_by = rows.text(i, "carried_by");
    one.launches = rows.integer(i, "launches");
    if (one.settings.find("\"target\"") != std::string::npos) one.reached = rows.real(i, "reached");
    one.samples = rows.real(i, "samples").value_or(0);
    one.trained_us = rows.real(i, "trained_us").value_or(0);
    one.over_plain = rows.real(i, "over_plain");
    one.samples_over_plain = rows.real(i, "samples_over_plain");
    one.sample_time_over_plain = rows.real(i, "sample_time_over_plain");
    one.beyond_plain = rows.real(i, "beyond_plain");
    one.beyond_plain_low = rows.real(i, "beyond_plain_low");
    one.beyond_plain_high = rows.real(i, "beyond_plain_high");
    one.beyond_samples_off = rows.real(i, "beyond_samples_off");
    if (const auto stale = rows.real(i, "most_stale"))
      one.most_stale = static_cast<std::int64_t>(*stale);
    one.consensus_distance = rows.real(i, "consensus_distance");
    one.unsent = rows.real(i, "unsent");
    one.sent_bytes = rows.real(i, "sent_bytes");
    if (const auto share = shares.find(key_of(rows, i)); share != shares.end()) {
      one.busiest_over_mean = share->second.busiest_over_mean;
      one.rounds_per_step = share->second.rounds_per_step;
    }
    CellFigure figure;
    figure.algorithm = one.method;
    figure.cell_knobs = one.settings;
    one.plain = is_plain_sgd(figure);
    one.mode = synchronisation_mode(one.architecture, one.synchronisation, one.compression);
    cells.push_back(std::move(one));
  }
  return cells;
}

}  // namespace dynamiccl
