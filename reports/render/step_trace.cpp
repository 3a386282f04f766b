#include "reports/render/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"
#include "train/spec/synchronisation.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

struct TracedCell {
  std::string id;
  std::string method;
  std::string said;  ///< what it is, for people
  std::string launch;
  std::int64_t measurement = 0;
  bool traced = false;
  /// How workers wait where a server answers each of them by itself; "" where they make one step.
  std::string answered_singly;
};

/// The training cells of a run, each by its launch with the median step.
std::vector<TracedCell> training_cells(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "WITH numbered AS (SELECT v.*, row_number() OVER (PARTITION BY cell_id ORDER BY step_us) AS "
      "place, count(*) OVER (PARTITION BY cell_id) AS launches FROM v_training v JOIN run r ON "
      "r.id = v.run_row WHERE r.uuid = ?1 AND v.counts) "
      "SELECT *, EXISTS (SELECT 1 FROM v_training_rank t WHERE t.measurement_row = "
      "n.measurement_row AND json_array_length(t.trace) > 0) AS traced, EXISTS (SELECT 1 FROM "
      "v_training_rank t WHERE t.measurement_row = n.measurement_row AND t.staleness IS NOT NULL) "
      "AS answered_singly FROM numbered n "
      "WHERE place = (launches + 1) / 2 ORDER BY environment, backend, model, ranks, method",
      {run});
  const TableView rows(table);
  std::vector<TracedCell> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string id = rows.text(i, "cell_id");
    const std::string waits = rows.text(i, "synchronisation");
    const std::string codec = rows.text(i, "compression");
    cells.push_back({id, rows.text(i, "method"),
                     fmt::format("{} {}{}{} of {} on {}, {}, {} ranks", id, rows.text(i, "method"),
                                 waits == name_of(Synchronisation::bsp) ? "" : ", " + waits + ",",
                                 codec == "none" ? "" : " with " + codec, rows.text(i, "model"),
                                 rows.text(i, "environment"), rows.text(i, "backend"),
                                 rows.integer(i, "ranks")),
                     rows.text(i, "launch_id"), rows.integer(i, "measurement_row"),
                     rows.integer(i, "traced") == 1,
                     rows.integer(i, "answered_singly") == 1 ? waits : ""});
  }
  return cells;
}

std::string listed(const std::vector<TracedCell>& cells) {
  std::string text;
  for (const auto& cell : cells)
    text += fmt::format("\n  {}{}", cell.said, cell.traced ? "" : " (no trace)");
  return text;
}

std::string others_with_one(const std::vector<TracedCell>& with) {
  return with.empty() ? "no cell of the run has one" : "cells with one:" + listed(with);
}

[[noreturn]] void refuse_untraced(const std::string& wanted, const TracedCell& cell,
                                  const std::vector<TracedCell>& with) {
  const std::string why =
      cell.answered_singly.empty()
          ? "its ranks stored none"
          : fmt::format(
                "a server answers each worker by itself there ({}), so that no step is "
                "everybody's; `query curves` has its rounds, and with epochs `query "
                "time_to_target` how stale gradients were",
                cell.answered_singly);
  throw Error(ErrorKind::input, fmt::format("show --trace {}: there is no trace of {}: {}; {}",
                                            wanted, cell.said, why, others_with_one(with)));
}

TracedCell chosen_cell(const Reader& reader, const std::string& run, const std::string& wanted) {
  const auto cells = training_cells(reader, run);
  std::vector<TracedCell> with;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(with),
               [](const TracedCell& cell) { return cell.traced; });
  if (cells.empty())
    throw Error(
        ErrorKind::input,
        fmt::format("show --trace: run {} keeps no trace of a step: it trained nothing that "
                    "counts; `dynamiccl list` names the runs, "
                    "experiments/training_grid.toml trains",
                    run));
  std::vector<TracedCell> meant;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(meant), [&](const auto& cell) {
    return !wanted.empty() && (cell.id.starts_with(wanted) || cell.method == wanted);
  });
  if (meant.empty())
    throw Error(ErrorKind::input,
                fmt::format("show --trace {}: no training cell of run {} has an id that begins so, "
                            "or this method; {}",
                            wanted, run, others_with_one(with)));
  if (meant.size() > 1)
    throw Error(ErrorKind::input,
                fmt::format("show --trace {}: {} cells of run {} are meant; name one by its id:{}",
                            wanted, meant.size(), run, listed(meant)));
  if (!meant.front().traced) refuse_untraced(wanted, meant.front(), with);
  return meant.front();
}

void add_names(json& events, std::int64_t rank, const std::string& role) {
  const auto name = [&](const char* what, int thread, json arguments) {
    events.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", arguments}});
  };
  name("process_name", 0, {{"name", fmt::format("rank {}, {}", rank, role)}});
  name("process_sort_index", 0, {{"sort_index", rank}});
  name("thread_name", 0, {{"name", "computation"}});
  name("thread_name", 1, {{"name", "communication"}});
}

/// Spans of all ranks on rank 0's clock, in the order of their starts, and from the first one on.
json spans_of(const TableView& ranks) {
  std::vector<json> spans;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    // The step lies somewhere between the two comparisons of the clocks.
    const double offset_us = ranks.real(i, "offset_us").value_or(0);
    for (json span : parsed_json(ranks.text(i, "trace"))) {
      span["ts"] = span.at("ts").get<double>() - offset_us;
      span["pid"] = ranks.integer(i, "rank");
      spans.push_back(std::move(span));
    }
  }
  const auto start = [](const json& span) { return span.at("ts").get<double>(); };
  std::stable_sort(spans.begin(), spans.end(),
                   [&](const json& a, const json& b) { return start(a) < start(b); });
  const double first_us = spans.empty() ? 0 : start(spans.front());
  for (json& span : spans) span["ts"] = start(span) - first_us;
  return spans;
}

}  // namespace

json step_trace(const Reader& reader, const std::string& run, const std::string& cell) {
  const std::string id = reader.resolve_run(run);
  const TracedCell chosen = chosen_cell(reader, id, std::string(trim(cell)));
  const Table table = reader.query(
      "SELECT t.rank, t.role, t.trace, "
      "CASE r.clock_shared WHEN 1 THEN 0.0 ELSE "
      "(r.clock_offset_us + r.clock_end_offset_us) / 2 END AS offset_us, "
      "CASE r.clock_shared WHEN 1 THEN 0.0 ELSE "
      "max(r.clock_error_us, r.clock_end_error_us) END AS error_us "
      "FROM v_training_rank t JOIN measurement m ON m.id = t.measurement_row "
      "JOIN launch_rank r ON r.launch_id = m.launch_id AND r.rank = t.rank "
      "WHERE t.measurement_row = ?1 AND json_array_length(t.trace) > 0 "
      "ORDER BY t.rank",
      {chosen.measurement});
  const TableView ranks(table);
  json events = json::array();
  std::optional<double> error_us = 0;  // nullopt: a clock was not compared
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    add_names(events, ranks.integer(i, "rank"), ranks.text(i, "role"));
    const auto own = ranks.real(i, "error_us");
    error_us = own && error_us ? std::optional(std::max(*own, *error_us)) : std::nullopt;
  }
  for (json& span : spans_of(ranks)) events.push_back(std::move(span));
  json about = {{"run", id}, {"launch", chosen.launch}, {"cell", chosen.said}};
  about["clock_error_us"] = error_us ? json(*error_us) : json("clocks were not compared");
  return {{"traceEvents", std::move(events)},
          {"displayTimeUnit", "ms"},
          {"otherData", std::move(about)}};
}

}  // namespace dynamiccl
