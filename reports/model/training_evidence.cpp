#include "reports/model/training_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

json details_json(const std::string& text) { return json_or_discarded(text); }

/// Numbers of rows [[a, b, ...]], a damaged row left out.
void each_number_row(const json& rows, std::size_t columns,
                     const std::function<void(const json&)>& use) {
  if (!rows.is_array()) return;
  for (const auto& row : rows)
    if (row.is_array() && row.size() >= columns &&
        std::all_of(row.begin(), row.end(), [](const json& v) { return v.is_number(); }))
      use(row);
}

void read_messages(TrainingEvidence& evidence, const json& gradients, const json& pieces,
                   const json& trace) {
  each_number_row(gradients, 2, [&](const json& row) {
    evidence.tensors.push_back(row[0].get<std::uint64_t>());
  });
  std::vector<std::uint64_t> offsets;
  each_number_row(pieces, 2, [&](const json& row) {
    offsets.push_back(row[0].get<std::uint64_t>());
    evidence.messages.push_back(row[1].get<std::uint64_t>() * sizeof(float));
  });
  if (!trace.is_array()) return;
  for (const auto& event : trace) {
    if (!event.is_object() || event.value("cat", json()) != "communication") continue;
    const auto name = event.value("name", std::string());  // "reduce 3"
    std::size_t piece = offsets.size();
    const auto digits = name.find_last_not_of("0123456789") + 1;
    std::from_chars(name.data() + digits, name.data() + name.size(), piece);
    // Ranks that agree on what is next send no gradients.
    if (piece >= offsets.size() || name.starts_with("agree")) continue;
    const bool answer = name.starts_with("all-gather") || name.starts_with("pull");
    evidence.sent.push_back({offsets[piece], evidence.messages[piece], event.value("ts", 0.0),
                             event.value("dur", 0.0), answer});
  }
  std::stable_sort(evidence.sent.begin(), evidence.sent.end(),
                   [](const auto& a, const auto& b) { return a.start_us < b.start_us; });
}

std::string key_of_row(const TableView& rows, std::size_t i) {
  return key_without(figure_cell(rows, i), "");
}

constexpr const char* kCellColumns =
    "m.run_id, m.environment, m.backend, m.architecture, m.collective, m.size_bytes, m.ranks, "
    "m.datatype, m.algorithm, m.in_place, m.group_knobs, m.cell_knobs";

/// By key of the cell. Messages are of the first launch: its plan and one step's trace.
std::map<std::string, TrainingEvidence> load_evidence(const Reader& reader, std::int64_t run) {
  std::map<std::string, TrainingEvidence> found;
  const Table plans = reader.query(
      fmt::format(
          "SELECT {}, json_extract(r.details_json, '$.gradients') AS gradients, "
          "json_extract(r.details_json, '$.pieces') AS pieces, "
          "json_extract(r.details_json, '$.trace') AS trace, "
          "json_extract(r.details_json, '$.carried_by') AS carried_by, min(m.block) AS block "
          "FROM v_measurement m JOIN training r ON r.measurement_id = m.measurement_row "
          "AND r.rank = (SELECT min(rank) FROM training WHERE measurement_id = "
          "m.measurement_row AND role = 'worker') "
          "WHERE m.run_row = ?1 AND m.counts GROUP BY m.cell_row",
          kCellColumns),
      {run});
  const TableView rows(plans);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TrainingEvidence& one = found[key_of_row(rows, i)];
    read_messages(one, details_json(rows.text(i, "gradients")),
                  details_json(rows.text(i, "pieces")), details_json(rows.text(i, "trace")));
    one.carried_by = rows.text(i, "carried_by");
  }
  const Table bytes = reader.query(
      fmt::format("SELECT {}, max(r.wire_bytes) FILTER (WHERE r.role = 'worker') AS worker, "
                  "avg(r.wire_bytes) AS every, "
                  "max(r.wire_bytes) FILTER (WHERE r.role = 'server') AS server, "
                  "avg((SELECT sum(s.compute_us) / sum(s.total_us) FROM sample s "
                  "WHERE s.measurement_id = r.measurement_id AND s.phase = 1 AND s.rank = r.rank "
                  "AND r.role = 'server')) AS busy "
                  "FROM v_measurement m JOIN training r ON r.measurement_id = m.measurement_row "
                  "WHERE m.run_row = ?1 AND m.counts GROUP BY m.cell_row",
                  kCellColumns),
      {run});
  const TableView sums(bytes);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    TrainingEvidence& one = found[key_of_row(sums, i)];
    one.worker_bytes = sums.real(i, "worker").value_or(0);
    one.mean_bytes = sums.real(i, "every").value_or(0);
    one.server_bytes = sums.real(i, "server").value_or(0);
    one.server_busy = sums.real(i, "busy");
  }
  return found;
}

std::string tradeoff_workload(const C2cCell& c) {
  return join({c.figure.environment, c.figure.backend, c.cell.model, std::to_string(c.cell.batch),
               std::to_string(c.figure.ranks)},
              "|");
}

}  // namespace

TrainingWorkloads::TrainingWorkloads(const Reader& reader, std::int64_t run)
    : cells_(c2c_cells(reader, run, load_figures(reader, {run}))),
      evidence_(load_evidence(reader, run)) {
  for (const auto& cell : cells_) {
    TrainingEvidence& one = evidence_[key_without(cell.figure, "")];
    one.cell = &cell;
    if (!trained_as_one(cell.figure)) continue;  // step times say nothing of those
    by_workload_[tradeoff_workload(cell)].push_back(&one);
  }
  for (auto& [name, list] : by_workload_)
    std::stable_sort(list.begin(), list.end(), [](const auto* a, const auto* b) {
      return a->cell->figure.median_us() < b->cell->figure.median_us();
    });
}

}  // namespace dynamiccl
