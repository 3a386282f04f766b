#include "orchestrator/cli/verbs/unfinished_run.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/stored_experiment.hpp"
#include "orchestrator/tune/samples.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

/// "--set protocol.launches=3 --only 'ranks == 2'", of a run's stored overrides.
std::string given_words(const std::string& overrides_json) {
  constexpr std::string_view kOnly = "only=";
  std::vector<std::string> given;
  for (const auto& word : stored_json(overrides_json)) {
    if (!word.is_string()) continue;
    const auto text = word.get<std::string>();
    if (text == kOwnMark) given.emplace_back("--own");
    if (is_mark(text)) continue;
    const bool only = text.starts_with(kOnly);
    given.push_back((only ? "--only " : "--set ") +
                    shell_quote(only ? text.substr(kOnly.size()) : text));
  }
  return given.empty() ? "neither --set nor --only" : join(given, " ");
}

}  // namespace

std::string unfinished_otherwise(const std::string& db, const RunInfo& info,
                                 std::string_view mark) {
  // Runs of tuning and of gates are marked by an override of their kind: one is no other's to
  // complete.
  const Table found = Reader(db).query(
      "SELECT r.uuid, e.overrides_json, e.spec_text = ?2 AS same_text FROM run r "
      "JOIN experiment e ON e.id = r.experiment_id WHERE r.status NOT IN ('complete', 'running') "
      "AND (r.spec_path = ?1 OR e.spec_text = ?2) AND r.replay_of IS NULL AND CASE WHEN ?3 = '' "
      "THEN e.overrides_json NOT LIKE '%\"tune=%' AND e.overrides_json NOT LIKE '%\"gate=%' "
      "ELSE instr(e.overrides_json, '\"' || ?3 || '\"') > 0 END ORDER BY r.id DESC LIMIT 1",
      {info.spec_path, info.spec_text, std::string(mark)});
  const TableView row(found);
  if (row.size() == 0) return "";
  const auto run = row.text(0, "uuid");
  if (row.integer(0, "same_text") == 0)
    return fmt::format("; run {} of a file of that name is unfinished, which had another text",
                       run);
  return fmt::format("; run {} of it is unfinished, which was started with {}", run,
                     given_words(row.text(0, "overrides_json")));
}

}  // namespace dynamiccl
