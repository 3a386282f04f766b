#include "reports/queries/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "embedded/query_list.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/pooling.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/sql_head.hpp"

namespace dynamiccl {
namespace {

/// @returns row keys of run, newest first when all are meant
std::vector<std::int64_t> runs_in_scope(const Reader& reader, const QueryScope& scope, bool all) {
  std::vector<std::int64_t> runs;
  const auto add = [&](const Table& table) {
    const TableView view(table);
    for (std::size_t i = 0; i < view.size(); ++i) runs.push_back(view.integer(i, "id"));
  };
  if (all) {
    add(reader.query("SELECT id FROM run ORDER BY id DESC"));
  } else if (scope.runs.empty()) {
    add(reader.query("SELECT id FROM run WHERE uuid = ?1", {reader.newest_run()}));
  } else {
    for (const auto& name : scope.runs) {
      add(reader.query("SELECT id FROM run WHERE uuid = ?1", {reader.resolve_run(name)}));
    }
  }
  return runs;
}

/// One run after the other: with an equality SQLite looks only at that run's rows, however many
/// others the database holds.
Table query_each(const Reader& reader, std::string_view sql,
                 const std::vector<std::int64_t>& runs) {
  std::vector<Value> values{Value{}};
  if (sql.find("?2") != std::string_view::npos) values.emplace_back(published_figures().dump());
  if (runs.empty()) return reader.query(std::string(sql), values);
  Table all;
  for (const std::int64_t run : runs) {
    values[0] = run;
    Table one = reader.query(std::string(sql), values);
    all.columns = std::move(one.columns);
    std::move(one.rows.begin(), one.rows.end(), std::back_inserter(all.rows));
  }
  return all;
}

void drop_run_column(Table& table) {
  const auto at = column_index(table, "run_id");
  if (!at) return;
  const auto place = static_cast<std::ptrdiff_t>(*at);
  table.columns.erase(table.columns.begin() + place);
  for (auto& row : table.rows) row.erase(row.begin() + place);
}

bool of_one_run(const Table& table) {
  const auto at = column_index(table, "run_id");
  return !at || std::all_of(table.rows.begin(), table.rows.end(),
                            [&](const auto& row) { return row[*at] == table.rows.front()[*at]; });
}

void keep_rows_where(Table& table, const QueryScope& scope) {
  for (const auto& [name, wanted] : scope.where) {
    const std::string column = column_index(table, name) ? name : column_called(name);
    const auto at = column_index(table, column);
    if (!at) {
      throw Error(ErrorKind::input, fmt::format("no column \"{}\" to choose rows by; {}", column,
                                                suggestion(column, table.columns)));
    }
    const std::string value = stored_value(column, wanted);
    std::erase_if(table.rows, [&](const auto& row) { return plain_text(row[*at]) != value; });
  }
}

Table figure_table(const Reader& reader, const Query& query, const std::vector<std::int64_t>& runs,
                   const QueryScope& scope) {
  auto figures = load_figures(reader, runs);
  if (scope.pool) figures = pool_runs(reader, runs, figures);
  return query.of_figures(
      query.of_all_cells ? figures : filter_figures(std::move(figures), scope.where), scope);
}

void name_columns(Table& table, const Query& query) {
  if (table.columns.empty()) table.columns = empty_table(query.columns).columns;
  for (const auto& row : table.rows)
    if (row.size() != table.columns.size())
      throw Error(ErrorKind::bug, fmt::format("query {}: a row of {} values for {} columns",
                                              query.name, row.size(), table.columns.size()));
}

/// A name that there is not leaves nothing, which looks like a run that did not measure it.
template <class E>
void refuse_unknown_name(const std::string& column, const std::string& value) {
  if (column != NameTable<E>::what || find_named<E>(value)) return;
  throw Error(ErrorKind::input, fmt::format("--where {0}={1}: unknown {0} \"{1}\"; {2}", column,
                                            value, suggestion(value, all_names<E>())));
}

Table table_of(const Reader& reader, const std::string& name, const QueryScope& scope) {
  const Query& query = query_named(name);
  if (scope.pool && query.of_figures == nullptr && !query.pools)
    throw Error(ErrorKind::input, fmt::format("query {}: --pool is for some queries, such as "
                                              "latency, overhead and best",
                                              name));
  if (query.of_database != nullptr) {
    Table table = query.of_database(reader);
    name_columns(table, query);
    keep_rows_where(table, scope);
    return table;
  }
  const bool every_run = query.every_run && scope.runs.empty();
  const auto runs = runs_in_scope(reader, scope, scope.all_runs || every_run);
  Table table = query.of_figures != nullptr ? figure_table(reader, query, runs, scope)
                : query.of_runs != nullptr  ? query.of_runs(reader, runs, scope)
                                            : query_each(reader, query.sql, runs);
  name_columns(table, query);
  if (query.of_figures == nullptr || query.of_all_cells) keep_rows_where(table, scope);
  const bool one_run = runs.size() < 2 || (scope.pool && of_one_run(table));
  if (one_run && !every_run) drop_run_column(table);
  return table;
}

bool is_name(std::string_view text) {
  return text.find_first_of(" \t\r\n;(") == std::string_view::npos;
}

std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string markdown_of(const Query& query) {
  std::string out =
      fmt::format("\n### `{}`: {}\n\nA row is {}.\n", query.name, query.title, query.row);
  if (query.takes_vary)
    out += "\nTakes `--vary AXIS`, the axis that varies while all others are fixed.\n";
  if (query.every_run) out += "\nOf all runs, unless `--run` names some.\n";
  if (!query.method.empty()) out += "\nJudged. " + query.method + ".\n";
  out += "\n| column | unit | type | meaning |\n|---|---|---|---|\n";
  for (const auto& column : parse_columns(query.columns, query.name)) {
    if (!column.end_of.empty()) continue;
    const std::string name =
        column.name == "*" ? "one for each value"
        : column.low.empty()
            ? fmt::format("`{}`", column.name)
            : fmt::format("`{}` (interval: `{}`, `{}`)", column.name, column.low, column.high);
    out += fmt::format("| {} | {} | {} | {} |\n", name, unit_text(column.unit),
                       type_text(column.type), markdown_cell(column.meaning));
  }
  return out;
}

}  // namespace

const std::vector<QueryTheme>& query_themes() {
  constexpr const char* kQuickstart = "run experiments/quickstart.toml";
  static const std::vector<QueryTheme> themes{
      {"times", "How long it takes", kQuickstart},
      {"environments", "What environments cost, and why", kQuickstart},
      {"choices", "What to choose", kQuickstart},
      {"training", "Training", "run experiments/training_grid.toml"},
      {"trust", "Can the figures be trusted", kQuickstart},
      {"tuning", "Searches", "tune search experiments/tune_smoke.toml"},
      {"database", "The database itself", kQuickstart}};
  return themes;
}

const std::vector<Query>& all_queries() {
  static const std::vector<Query> queries = [] {
    std::vector<Query> all;
    for (const auto& entry : embedded::query_list()) {
      Query query = entry.make != nullptr ? entry.make() : query_of_sql(entry.sql);
      query.name = entry.name;
      query.theme = entry.theme;
      all.push_back(std::move(query));
    }
    return all;
  }();
  return queries;
}

const Query* find_query(std::string_view name) {
  const auto& queries = all_queries();
  const auto found = std::find_if(queries.begin(), queries.end(),
                                  [&](const Query& query) { return query.name == name; });
  return found == queries.end() ? nullptr : &*found;
}

const Query& query_named(std::string_view name) {
  if (const Query* query = find_query(name)) return *query;
  std::vector<std::string> names;
  for (const auto& query : all_queries()) names.push_back(query.name);
  throw Error(ErrorKind::input,
              fmt::format("unknown query \"{}\"; {}", name, suggestion(std::string(name), names)));
}

Columns columns_of(const std::string& name_or_sql, const Table& table) {
  const std::string text(trim(name_or_sql));
  const Query* query = is_name(text) ? find_query(text) : nullptr;
  if (query == nullptr) {
    Columns plain;
    for (const auto& name : table.columns) {
      Column column;
      column.name = column.heading = name;
      plain.push_back(std::move(column));
    }
    return plain;
  }
  return describe(table.columns, parse_columns(query->columns, query->name));
}

std::string queries_markdown() {
  std::string out =
      "# Queries\n\n`dynamiccl query NAME` answers one of these from the database; `--json` and "
      "`--format csv`\ngive plain numbers in the units below, with these names. "
      "`dynamiccl query --markdown` prints this page.\n\n"
      "An interval is at 95 % over launches. `run_id` is there where more than one run is looked "
      "at.\n";
  for (const auto& theme : query_themes()) {
    out += fmt::format("\n## {}\n", theme.title);
    for (const auto& query : all_queries())
      if (query.theme == theme.folder) out += markdown_of(query);
  }
  return out;
}

Table named_query(const Reader& reader, const std::string& name, const QueryScope& scope) {
  Table table = table_of(reader, name, scope);
  if (!table.rows.empty()) return table;
  for (const auto& [column, value] : scope.where) {
    refuse_unknown_name<Backend>(column, value);
    refuse_unknown_name<Architecture>(column, value);
    refuse_unknown_name<Collective>(column, value);
    refuse_unknown_name<DataType>(column, value);
  }
  return table;
}

Table any_query(const Reader& reader, const std::string& name_or_sql, const QueryScope& scope) {
  const std::string text(trim(name_or_sql));
  if (is_name(text)) return named_query(reader, text, scope);
  if (!scope.runs.empty() || scope.all_runs || scope.pool || !scope.where.empty()) {
    throw Error(
        ErrorKind::input,
        "query: --run, --all, --pool and --where choose rows of named queries; in SQL write them "
        "as WHERE run_id = '...'");
  }
  return reader.query(text);
}

}  // namespace dynamiccl
