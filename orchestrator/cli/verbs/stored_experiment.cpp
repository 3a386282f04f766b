#include "orchestrator/cli/verbs/stored_experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kOnly = "only=";
constexpr std::string_view kTune = "tune=";
constexpr std::array<std::string_view, 3> kMarks{"gate=", "replay=", kTune};

/// The run whose launch was repeated; "" where the database has it no more.
std::string run_of_launch(const Reader& reader, const std::string& launch) {
  const Table table = reader.query("SELECT run_id FROM v_launch WHERE launch_id = ?1", {launch});
  return table.rows.empty() ? "" : TableView(table).text(0, "run_id");
}

}  // namespace

bool is_mark(const std::string& override_text) {
  return std::any_of(kMarks.begin(), kMarks.end(),
                     [&](std::string_view mark) { return override_text.starts_with(mark); });
}

StoredExperiment stored_experiment(const Reader& reader, const std::string& run,
                                   const std::string& what) {
  const Table table = reader.query(
      "SELECT x.spec_text, x.overrides_json, r.replay_of, EXISTS (SELECT 1 FROM imported_run i "
      "WHERE i.run_id = r.id AND i.format <> 'dynamiccl') AS is_table "
      "FROM run r JOIN experiment x ON x.id = r.experiment_id WHERE r.uuid = ?1",
      {run});
  const TableView rows(table);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::input, fmt::format("{}: run {} {}", what, run.substr(0, 8), why));
  };
  StoredExperiment stored{rows.text(0, "spec_text"), {}, ""};
  if (stored.text.empty() || rows.integer(0, "is_table") != 0)
    refuse("has no experiment that could be repeated: it is another tool's table");
  if (const auto launch = rows.text(0, "replay_of"); !launch.empty()) {
    const auto of = run_of_launch(reader, launch);
    refuse(of.empty() ? "is one launch again, of a run that is not in this database"
                      : fmt::format("is one launch of run {0} again: name {0}", of.substr(0, 8)));
  }
  for (const auto& one : parsed_json(rows.text(0, "overrides_json"))) {
    const auto text = one.get<std::string>();
    if (text.starts_with(kTune)) refuse("is a search's or a sweep's: name one that `run` stored");
    if (text.starts_with(kOnly))
      stored.only = text.substr(kOnly.size());
    else if (!is_mark(text))
      stored.overrides.push_back(text);
  }
  return stored;
}

}  // namespace dynamiccl
