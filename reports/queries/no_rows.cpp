#include "reports/queries/no_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <vector>

#include "core/vocabulary/text.hpp"
#include "db/usual_db.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kShortId = 8;  // of an id, which commands take for the whole
constexpr std::size_t kRunsAsked = 20;

struct NamedRun {
  std::string id;
  std::string name;
  [[nodiscard]] std::string text() const {
    return fmt::format("{} ({})", id.substr(0, kShortId), name);
  }
};

/// Newest first.
std::vector<NamedRun> every_stored_run(const Reader& reader) {
  std::vector<NamedRun> runs;
  const Table table = reader.query("SELECT uuid, name FROM run ORDER BY id DESC");
  const TableView view(table);
  for (std::size_t i = 0; i < view.size(); ++i)
    runs.push_back({view.text(i, "uuid"), view.text(i, "name")});
  return runs;
}

/// What the query has looked at.
std::vector<NamedRun> asked_runs(const Reader& reader, const Query& query, const QueryScope& scope,
                                 const std::vector<NamedRun>& all) {
  const bool every =
      scope.all_runs || query.of_database != nullptr || (query.every_run && scope.runs.empty());
  if (every || all.empty()) return all;
  std::set<std::string> ids;
  for (const auto& name : scope.runs) ids.insert(reader.resolve_run(name));
  // As the query does, which passes over tries that failed.
  if (const auto newest = reader.newest_run(); ids.empty())
    ids.insert(newest.empty() ? all.front().id : newest);
  std::vector<NamedRun> asked;
  std::copy_if(all.begin(), all.end(), std::back_inserter(asked),
               [&](const NamedRun& run) { return ids.contains(run.id); });
  return asked;
}

/// The first part of what a row is: "one cell with copies between host and device".
std::string rows_subject(const Query& query) {
  int open = 0;  // brackets, which are not cut
  for (std::size_t i = 0; i + 1 < query.row.size(); ++i) {
    const char mark = query.row[i];
    open += mark == '(' ? 1 : mark == ')' ? -1 : 0;
    if (open == 0 && (mark == ':' || mark == ';') && query.row[i + 1] == ' ')
      return query.row.substr(0, i);
  }
  return query.row;
}

std::string command_that_measures(const Query& query) {
  if (!query.measured_by.empty()) return query.measured_by;
  for (const auto& theme : query_themes())
    if (theme.folder == query.theme) return std::string(theme.measured_by);
  return "run experiments/quickstart.toml";
}

/// What narrows or shapes the rows, as it is typed.
std::string shape_words(const Query& query, const QueryScope& scope) {
  std::string words;
  if (query.takes_vary) words += " --vary " + shell_quote(scope.vary);
  if (scope.pool) words += " --pool";
  return words;
}

std::string where_words(const QueryScope& scope) {
  std::string words;
  for (const auto& [column, value] : scope.where)
    words += " --where " + shell_quote(column + "=" + value);
  return words;
}

/// "" or the newest of the other runs that has rows, with the command that shows them.
std::string another_run(const Reader& reader, const Query& query, const QueryScope& scope,
                        const std::vector<NamedRun>& all, const std::vector<NamedRun>& asked) {
  std::size_t left = kRunsAsked;
  for (const auto& run : all) {
    const bool was_asked = std::any_of(asked.begin(), asked.end(),
                                       [&](const NamedRun& other) { return other.id == run.id; });
    if (was_asked) continue;
    if (left-- == 0) return "";
    QueryScope other = scope;
    other.all_runs = false;
    other.runs = {run.id};
    const auto rows = named_query(reader, query.name, other).rows.size();
    if (rows == 0) continue;
    return fmt::format("run {} has {}:\n  dynamiccl query {}{}{} --run {}{}\n", run.text(),
                       rows == 1 ? "one" : fmt::format("{}", rows), query.name,
                       shape_words(query, scope), where_words(scope), run.id.substr(0, kShortId),
                       db_words(reader.path()));
  }
  return "";
}

/// "run 3fa91c02 (quickstart)", "none of the 4 runs of this database".
std::string looked_at(const std::vector<NamedRun>& asked) {
  return asked.size() == 1
             ? "run " + asked.front().text() + " has none"
             : fmt::format("none of the {} runs that were asked has one", asked.size());
}

}  // namespace

std::string why_no_rows(const Reader& reader, const Query& query, const QueryScope& scope) {
  const auto all = every_stored_run(reader);
  const std::string head = fmt::format("query {}: no rows: ", query.name);
  if (all.empty())
    return fmt::format("{}database {} holds no run yet; measure one:\n  dynamiccl {}{}\n", head,
                       reader.path(), command_that_measures(query), db_words(reader.path()));
  if (!scope.where.empty()) {
    QueryScope without = scope;
    without.where.clear();
    const auto rows = named_query(reader, query.name, without).rows.size();
    if (rows > 0)
      return fmt::format(
          "query {}: no row meets{}; without it there {}; what was measured:\n"
          "  dynamiccl query coverage{}\n",
          query.name, where_words(scope), rows == 1 ? "is one" : fmt::format("are {}", rows),
          db_words(reader.path()));
  }
  const auto asked = asked_runs(reader, query, scope, all);
  std::string text =
      fmt::format("{}a row is {}, and {}", head, rows_subject(query), looked_at(asked));
  if (!query.none_means.empty()) return text + ": " + query.none_means + "\n";
  if (query.takes_vary)
    text += fmt::format("; it needs cells that differ in {} alone", scope.vary);
  else if (!query.needs.empty())
    text += "; it needs " + query.needs;
  const std::string other = another_run(reader, query, scope, all, asked);
  if (!other.empty()) return text + "; " + other;
  // No experiment that comes along varies every axis.
  if (query.takes_vary)
    return fmt::format("{}, as with --set axes.{}=[...] where that is an axis\n", text, scope.vary);
  return fmt::format("{}; this measures some:\n  dynamiccl {}{}\n", text,
                     command_that_measures(query), db_words(reader.path()));
}

}  // namespace dynamiccl
