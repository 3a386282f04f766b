#include "reports/model/synchronisation_warnings.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/target_times.hpp"
#include "reports/model/training_report.hpp"
#include "reports/page/section.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

// A curve of more points says no more on a screen.
constexpr std::size_t kCurvePoints = 80;

/// Means of neighbours as [step, loss]: single steps of one batch are noisy.
json thinned(const json& losses) {
  json points = json::array();
  const std::size_t stride = (losses.size() + kCurvePoints - 1) / kCurvePoints;
  for (std::size_t from = 0; stride > 0 && from < losses.size(); from += stride) {
    const std::size_t to = std::min(losses.size(), from + stride);
    double sum = 0;
    double known = 0;
    for (std::size_t i = from; i < to; ++i) {
      // A worker has none in a round without it, and none that diverged.
      if (!losses[i].is_number()) continue;
      sum += losses[i].get<double>();
      ++known;
    }
    if (known > 0) points.push_back({to, rounded(sum / known)});
  }
  return points;
}

/// The first worker's losses and accuracies in the first launch of each cell.
json curves(const PageContext& page) {
  const Table table = page.reader.query(
      "SELECT t.environment, t.backend, t.architecture, t.ranks, t.model, t.batch, t.method, "
      "t.settings, r.losses, r.accuracies, min(t.block) AS block FROM v_training t "
      "JOIN v_training_rank r ON r.measurement_row = t.measurement_row AND r.first_worker "
      "WHERE t.run_row = ?1 AND t.counts GROUP BY t.cell_id",
      {page.run_row});
  const TableView rows(table);
  json found = json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json losses = stored_json(rows.text(i, "losses"));
    if (!losses.is_array() || losses.size() < 2) continue;
    json curve{{"losses", thinned(losses)},
               {"accuracies", stored_json(rows.text(i, "accuracies"))}};
    for (const char* axis :
         {"environment", "backend", "architecture", "model", "method", "settings"})
      curve[axis] = rows.text(i, axis);
    CellFigure figure;
    figure.algorithm = rows.text(i, "method");
    figure.cell_knobs = rows.text(i, "settings");
    curve["configuration"] = configuration_words(figure);
    for (const char* axis : {"ranks", "batch"}) curve[axis] = rows.integer(i, axis);
    found.push_back(std::move(curve));
  }
  return found;
}

bool has_epochs(const PageContext& page) {
  const Table any = page.reader.query(
      "SELECT 1 FROM v_training WHERE run_row = ?1 AND counts AND json_extract(settings, "
      "'$.epochs') IS NOT NULL LIMIT 1",
      {page.run_row});
  return !any.rows.empty();
}

/// What each way to train costs and what it comes to, where accuracies were taken after epochs.
json ways(const PageContext& page, const QueryScope& scope) {
  if (!has_epochs(page)) return json::array();
  json rows = table_json(named_query(page.reader, "time_to_target", scope));
  for (json& row : rows) {
    CellFigure figure;
    figure.algorithm = row.at("method").get<std::string>();
    figure.cell_knobs = row.at("settings").is_string() ? row.at("settings").get<std::string>()
                                                       : row.at("settings").dump();
    row["configuration"] = configuration_words(figure);
    row.erase("settings");
  }
  return rows;
}

/// Cells with epochs: the accuracy against the time that its steps took and the bytes that the
/// busiest rank sent, as [seconds, bytes, accuracy], in the launch with the median step.
json progress(const PageContext& page, const QueryScope& scope) {
  if (!has_epochs(page)) return json::array();
  const Table table = named_query(page.reader, "curves", scope);
  const TableView rows(table);
  json found = json::array();
  std::string last;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto accuracy = rows.real(i, "accuracy");
    if (!accuracy) continue;
    if (found.empty() || rows.text(i, "cell_id") != last) {
      last = rows.text(i, "cell_id");
      CellFigure figure;
      figure.algorithm = rows.text(i, "method");
      figure.cell_knobs = rows.text(i, "settings");
      json cell{{"configuration", configuration_words(figure)}, {"points", json::array()}};
      for (const char* axis : {"environment", "backend", "architecture", "model", "method"})
        cell[axis] = rows.text(i, axis);
      for (const char* axis : {"ranks", "batch"}) cell[axis] = rows.integer(i, axis);
      found.push_back(std::move(cell));
    }
    found.back()["points"].push_back({rounded(rows.real(i, "trained_us").value_or(0) / 1e6),
                                      rounded(rows.real(i, "sent_bytes").value_or(0)),
                                      rounded(*accuracy)});
  }
  return found;
}

}  // namespace

// Null for a run that trained nothing: the section is then left out.
json training_data(const PageContext& page) {
  const Table report = training_report(page.reader, page.run_row, page.figures);
  if (report.rows.empty()) return {};
  QueryScope scope;
  scope.runs = {page.run};
  return {{"rows", table_json(report)},
          {"warnings", synchronisation_warnings(page.reader, page.run_row, page.figures)},
          {"curves", curves(page)},
          {"progress", progress(page, scope)},
          {"ways", ways(page, scope)},
          {"scaling", table_json(named_query(page.reader, "scaling", scope))},
          {"c2c", table_json(named_query(page.reader, "c2c", scope))}};
}

}  // namespace dynamiccl
