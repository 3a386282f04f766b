#include "reports/model/training_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/table_view.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {
namespace {

/// Columns of v_training that become medians over launches, by the name they get.
constexpr std::array<std::pair<const char*, const char*>, 20> kMedians{
    {{"samples_per_second", "samples_per_s"},
     {"speedup", "speedup"},
     {"single_us", "single_us"},
     {"compute_us", "compute_us"},
     {"forward_us", "forward_us"},
     {"backward_us", "backward_us"},
     {"update_us", "update_us"},
     {"exposed_us", "exposed_us"},
     {"communication_us", "communication_us"},
     {"predicted_us", "predicted_us"},
     {"wire_bytes", "wire_bytes"},
     {"counted_bytes", "counted_bytes"},
     {"c2c_predicted", "c2c_predicted"},
     {"c2c_measured", "c2c_measured"},
     {"intensity", "intensity"},
     {"first_loss", "first_loss"},
     {"last_loss", "last_loss"},
     {"accuracy", "accuracy"},
     {"epochs", "epochs"},
     {"trained_us", "trained_us"}}};

/// One cell's launches in v_training.
struct Trained {
  std::string model;
  std::int64_t batch = 0;
  std::int64_t workers = 0;
  std::string path;  ///< how a GPU's gradients went, of the last launch
  std::string task;  ///< model, batch, sequence and data: what must be equal to be compared
  std::map<std::string, std::vector<double>> values;

  [[nodiscard]] std::optional<double> typical(const std::string& name) const {
    const auto found = values.find(name);
    if (found == values.end() || found->second.empty()) return std::nullopt;
    return median(found->second);
  }
};

std::string axes_of(const std::string& environment, const std::string& backend,
                    const std::string& architecture, std::int64_t ranks, const std::string& knobs) {
  return join({environment, backend, architecture, std::to_string(ranks), knobs}, "|");
}

nlohmann::json settings_json(const std::string& text) {
  auto settings = json_or_discarded(text);
  return settings.is_object() ? settings : nlohmann::json::object();
}

/// The settings besides model and batch: "bucket=1 MiB".
std::string shown_settings(const nlohmann::json& settings) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : settings.items()) {
    if (name == "model" || name == "batch") continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const bool bytes = name == "bucket" || name == "partition" || name == "credit";
    parts.push_back(fmt::format("{}={}", name, bytes ? format_bytes(parse_bytes(text)) : text));
  }
  return join(parts, " ");
}

std::map<std::string, Trained> load_trained(const Reader& reader, std::int64_t run_row) {
  const Table table = reader.query(
      "SELECT t.*, m.group_knobs AS group_knobs, "
      "r.path, r.epochs FROM v_training t "
      "JOIN v_measurement m ON m.measurement_row = t.measurement_row "
      "JOIN v_training_rank r ON r.measurement_row = t.measurement_row AND r.first_worker "
      "WHERE t.run_row = ?1 AND t.counts ORDER BY t.block",
      {run_row});
  const TableView rows(table);
  std::map<std::string, Trained> trained;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string key =
        axes_of(rows.text(i, "environment"), rows.text(i, "backend"), rows.text(i, "architecture"),
                rows.integer(i, "ranks"),
                rows.text(i, "method") + rows.text(i, "settings") + rows.text(i, "group_knobs"));
    Trained& cell = trained[key];
    const auto settings = settings_json(rows.text(i, "settings"));
    cell.model = rows.text(i, "model");
    cell.batch = rows.integer(i, "batch");
    cell.workers = rows.integer(i, "workers");
    cell.path = rows.text(i, "path");
    cell.task = join({cell.model, std::to_string(cell.batch), settings.value("sequence", ""),
                      settings.value("data", "")},
                     "|");
    for (const auto& [name, column] : kMedians)
      if (const auto value = rows.real(i, column)) cell.values[name].push_back(*value);
  }
  return trained;
}

struct Row {
  const CellFigure* figure;
  const Trained* trained;
  /// Equal for cells that may be set against one baseline.
  [[nodiscard]] std::string task() const {
    return axes_of(figure->environment, figure->backend, figure->architecture, figure->ranks,
                   trained->task + figure->group_knobs);
  }
};

/// Of each task the fastest that a library's own engine trained.
std::map<std::string, const CellFigure*> baselines_of(const std::vector<Row>& rows) {
  std::map<std::string, const CellFigure*> best;
  for (const auto& row : rows) {
    const auto method = find_named<TrainingMethod>(row.figure->algorithm);
    if (!method || !method_row(*method).engine) continue;
    const CellFigure*& known = best[row.task()];
    if (known == nullptr || row.figure->median_us() < known->median_us()) known = row.figure;
  }
  return best;
}

std::vector<Value> values_of(const Row& row, const CellFigure* baseline) {
  const CellFigure& f = *row.figure;
  const Trained& t = *row.trained;
  std::vector<Value> values{f.environment,
                            f.backend,
                            f.architecture,
                            t.model,
                            t.batch,
                            f.algorithm,
                            or_null(shown_settings(settings_json(f.cell_knobs))),
                            or_null(t.path),
                            f.ranks,
                            t.workers,
                            static_cast<std::int64_t>(f.launches.size()),
                            f.median_us()};
  add_bounds(values, f.interval());
  // A round of several steps, or of nobody's waiting, is no step to set against one.
  if (baseline == nullptr || !trained_as_one(f)) {
    values.resize(values.size() + 3);
  } else {
    const Ratio ratio = baseline == &f ? Ratio{1.0} : time_ratio(f, *baseline);
    values.emplace_back(ratio.value);
    add_bounds(values, ratio.interval);
  }
  const auto predicted = t.typical("predicted_us");
  values.push_back(
      or_null(predicted ? std::optional(100 * (*predicted / f.median_us() - 1)) : std::nullopt));
  for (const auto& [name, column] : kMedians) values.push_back(or_null(t.typical(name)));
  return values;
}

std::vector<Row> rows_of(const std::map<std::string, Trained>& trained,
                         const std::vector<CellFigure>& figures) {
  std::vector<Row> rows;
  for (const auto& figure : figures) {
    const auto found =
        trained.find(axes_of(figure.environment, figure.backend, figure.architecture, figure.ranks,
                             figure.algorithm + figure.cell_knobs + figure.group_knobs));
    if (figure.collective == "training" && found != trained.end())
      rows.push_back({&figure, &found->second});
  }
  return rows;
}

}  // namespace

std::vector<FastestTraining> fastest_trainings(const Reader& reader, std::int64_t run_row,
                                               const std::vector<CellFigure>& figures) {
  const auto trained = load_trained(reader, run_row);
  const auto rows = rows_of(trained, figures);
  const auto baselines = baselines_of(rows);
  using Order = decltype(environment_order(""));
  using Key = std::tuple<Order, std::string, std::string, std::int64_t, std::string>;
  std::map<Key, const Row*> best;
  std::set<Key> of_epochs;
  for (const auto& row : rows) {
    const CellFigure& figure = *row.figure;
    const Key key{environment_order(figure.environment), figure.environment, figure.backend,
                  row.trained->workers, row.trained->task};
    if (row.trained->typical("epochs")) of_epochs.insert(key);
    const Row*& known = best[key];
    const auto better = [&] {
      if (known == nullptr) return true;
      const bool counts = trained_as_one(figure);
      if (counts != trained_as_one(*known->figure)) return counts;
      return figure.median_us() < known->figure->median_us();
    };
    if (better()) known = &row;
  }
  std::vector<FastestTraining> fastest;
  for (const auto& [key, row] : best) {
    const CellFigure& figure = *row->figure;
    FastestTraining one{figure.environment,  figure.backend,        row->trained->model,
                        row->trained->batch, row->trained->workers, of_epochs.contains(key)};
    if (trained_as_one(figure)) {
      one.method = figure.algorithm;
      one.step_us = figure.median_us();
      const auto baseline = baselines.find(row->task());
      if (baseline != baselines.end())
        one.over_ddp =
            baseline->second == &figure ? 1 : time_ratio(figure, *baseline->second).value;
    }
    fastest.push_back(std::move(one));
  }
  return fastest;
}

Table training_report(const Reader& reader, std::int64_t run_row,
                      const std::vector<CellFigure>& figures) {
  Table table;
  table.columns = {"environment",  "backend",       "architecture",
                   "model",        "batch",         "method",
                   "settings",     "path",          "ranks",
                   "workers",      "launches",      "step_us",
                   "step_low_us",  "step_high_us",  "over_ddp",
                   "over_ddp_low", "over_ddp_high", "prediction_error_percent"};
  for (const auto& [name, column] : kMedians) table.columns.emplace_back(name);
  const auto trained = load_trained(reader, run_row);
  auto rows = rows_of(trained, figures);
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    const auto place = [](const Row& row) {
      return std::tuple(environment_order(row.figure->environment), row.figure->backend,
                        row.figure->architecture, row.figure->ranks, row.trained->task,
                        row.figure->median_us());
    };
    return place(a) < place(b);
  });
  const auto baselines = baselines_of(rows);
  for (const auto& row : rows) {
    const auto baseline = baselines.find(row.task());
    table.rows.push_back(values_of(row, baseline == baselines.end() ? nullptr : baseline->second));
  }
  return table;
}

Columns training_columns() {
  return with_shared(parse_columns(R"(
path | text | how a GPU's gradients went
over_ddp | real, interval | step over that of the best ddp in the same launches
prediction_error_percent | percent, real | predicted over measured step, less 1
samples_per_second | real | samples of all workers per second
speedup | real | throughput over one worker's
single_us | us, real | a step of one worker alone
forward_us | us, real | forward pass
backward_us | us, real | backward pass
update_us | us, real | update of the weights
predicted_us | us, real | the step as profile and cost table have it
wire_bytes | bytes, real | payload sent by the busiest rank in a step
counted_bytes | bytes, real | what the kernel counted of it
trained_us | us, real | sum of the steps, without evaluations
)",
                                   "training_report"));
}

namespace {

constexpr const char* kOverviewColumns =
    "environment backend model batch method settings path workers launches step_us step_low_us "
    "step_high_us over_ddp over_ddp_low over_ddp_high samples_per_second speedup exposed_us "
    "prediction_error_percent wire_bytes counted_bytes accuracy epochs trained_us";

}  // namespace

Table training_overview(const Table& report) {
  Table some;
  std::vector<std::size_t> kept;
  for (const std::string& name : split(kOverviewColumns, ' ')) {
    const auto found = column_index(report, name);
    const bool known =
        found && std::any_of(report.rows.begin(), report.rows.end(), [&](const auto& row) {
          return !std::holds_alternative<std::monostate>(row[*found]);
        });
    if (!known) continue;
    kept.push_back(*found);
    some.columns.emplace_back(name);
  }
  for (const auto& row : report.rows) {
    auto& values = some.rows.emplace_back();
    for (const std::size_t column : kept) values.push_back(row[column]);
  }
  return some;
}

}  // namespace dynamiccl
