#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "embedded/query_list.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/pooling.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/figure_queries.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/queries/run_queries.hpp"

namespace dynamiccl {
namespace {

/// A query whose intervals need more than SQL.
struct FigureQuery {
  std::string_view name;
  std::string_view title;
  std::string_view row;
  /// false: rows are chosen after the table is made, for a query that looks at other cells too.
  bool choose_first;
  Table (*table)(const std::vector<CellFigure>&, const QueryScope&);
};

constexpr std::array kFigureQueries{
    FigureQuery{"latency", "Latency",
                "one cell: median of its launch medians with the interval over launches", true,
                latency_table},
    FigureQuery{"overhead", "Overhead of environments",
                "one cell outside bare metal against the same cell there; ratio = typical one of "
                "the launches of a block, which can point the other way than the two medians (then "
                "note tells); difference_percent = difference divided by the faster time, above 0 "
                "where bare metal is the faster",
                false, overhead_table},
    FigureQuery{"best", "Best choice",
                "one operation, size and environment: fastest and slowest of what was measured",
                true, best_table},
    FigureQuery{"axis", "One axis, all others fixed",
                "cells that differ in one axis only (--vary), side by side with the winner, the "
                "one of the lowest median; whether that is sure is judged by the typical ratio of "
                "launches",
                true, axis_table},
    FigureQuery{"crossover", "Crossover sizes",
                "two environments (--vary: or backends, algorithms) of one operation and the size "
                "at which the faster becomes the slower",
                true, crossover_table},
    FigureQuery{"fit", "Start-up time and bandwidth",
                "one line of time over size: alpha + size / bandwidth, over all sizes and by "
                "pieces, with its error",
                true, fit_table},
    FigureQuery{"bandwidth", "Bandwidth",
                "one cell: algorithm and bus bandwidth as nccl-tests defines them", true,
                bandwidth_table},
    FigureQuery{"components", "Components",
                "one cell: where its time goes; each part of a sample adds up to its time, the "
                "medians of the parts only about to the median of the whole",
                true, components_table},
    FigureQuery{"copy_share", "Share of memory copies",
                "one cell with copies between host and device: their share of its time", true,
                copy_share_table},
    FigureQuery{"findings", "Findings",
                "one factor in one environment, collective and size class: who surely wins how "
                "often, and by how much the first is ahead of the second",
                false, findings_table},
    FigureQuery{"floor", "Floor check",
                "one cell of NCCL against the same cell of Gloo: is it slower than that floor?",
                false, floor_table},
    FigureQuery{"rankings", "Published rankings",
                "one cell on bare metal: the published order of backends, the order here, and "
                "whether they surely agree or differ",
                false, rankings_table},
    FigureQuery{"independence", "Independence of launches",
                "one group: do its launches depend on their order (permutation test)?", true,
                independence_table}};

constexpr std::array kRunQueries{
    RunQuery{"line_rate", "Bandwidth against the line rate",
             "one cell: effective bandwidth, its share of the link's rate where that is known and "
             "of the best size, and how far the best size is ahead",
             line_rate_table},
    RunQuery{"interconnect", "Interconnect",
             "one environment and backend: what its links inside and outside can carry, and "
             "whether that is flat (inside below 1.5 x outside)",
             interconnect_table},
    RunQuery{"tradeoffs", "Trade-offs",
             "one operation, size and aspect (time, 95th percentile, start-up): the values of "
             "--vary side by side with the winner; architectures at equal workers",
             tradeoffs_table},
    RunQuery{"atlas", "Regime atlas of training",
             "one model, batch and number of workers: the best method with its speed-up, the "
             "runner-up, and whether the lead is sure",
             atlas_table},
    RunQuery{"attribution", "What a difference in training time is made of",
             "one training cell: its step minus the same on bare metal = difference of computing + "
             "of waiting for gradients (exposed) + rest, beside the micro-benchmark's times of its "
             "messages, added up, here and there; correlation: of the logarithms of those sums and "
             "of measured communication over all cells of the run",
             attribution_table},
    RunQuery{
        "flips", "Changes of places",
        "one pair (server and ring at equal workers, methods that merge gradients and that "
        "cut them, backends) and axis along which the faster becomes the slower, or that none does",
        flips_table},
    RunQuery{"tiers", "Configuration per tier",
             "one piece of work on one tier (1 shared memory or NVLink, 2 PCIe or a network of "
             "100 Gb/s, 3 of 25 Gb/s, 4 slower): the best configuration, and what keeping the "
             "nearest tier's costs",
             tiers_table},
    RunQuery{"page_faults", "Page faults and the allocator",
             "one cell: page faults of a call beside the message's pages, what the settings "
             "malloc.keep and malloc.huge_pages came to in its ranks, and its time over that of "
             "the allocator's default",
             page_faults_table},
    RunQuery{
        "stragglers", "Stragglers",
        "one rank of a group: is it slower than the others of its kind (own_work: copies, "
        "sums and computing; arrival: after the barrier), in how many iterations and launches?",
        straggler_table}};

std::vector<RunQuery> run_queries() {
  std::vector<RunQuery> queries(kRunQueries.begin(), kRunQueries.end());
  const auto training = training_queries();
  queries.insert(queries.end(), training.begin(), training.end());
  return queries;
}

/// Value of a "-- key: value" line at the head of a query file; lines that go on with it begin with
/// "--   ".
std::string header_of(std::string_view sql, std::string_view key) {
  constexpr std::string_view kGoesOn = "--   ";
  const std::string prefix = fmt::format("-- {}: ", key);
  std::string value;
  bool found = false;
  for (const auto& line : split(std::string(sql), '\n')) {
    if (found && line.starts_with(kGoesOn)) {
      value += ' ' + line.substr(kGoesOn.size());
      continue;
    }
    if (found || !line.starts_with("--")) break;
    found = line.starts_with(prefix);
    if (found) value = line.substr(prefix.size());
  }
  return value;
}

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
    add(reader.query("SELECT id FROM run ORDER BY id DESC LIMIT 1"));
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
  if (runs.empty()) return reader.query(std::string(sql), {Value{}});
  Table all;
  for (const std::int64_t run : runs) {
    Table one = reader.query(std::string(sql), {run});
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
  for (const auto& [column, wanted] : scope.where) {
    const auto at = column_index(table, column);
    if (!at) {
      throw Error(ErrorKind::input, fmt::format("no column \"{}\" to choose rows by; {}", column,
                                                suggestion(column, table.columns)));
    }
    const std::string value = stored_value(column, wanted);
    std::erase_if(table.rows, [&](const auto& row) { return plain_text(row[*at]) != value; });
  }
}

Table figure_table(const Reader& reader, const FigureQuery& query,
                   const std::vector<std::int64_t>& runs, const QueryScope& scope) {
  auto figures = load_figures(reader, runs);
  if (scope.pool) figures = pool_runs(reader, runs, figures);
  if (query.choose_first)
    return query.table(filter_figures(std::move(figures), scope.where), scope);
  Table table = query.table(figures, scope);
  keep_rows_where(table, scope);
  return table;
}

/// A name that there is not leaves nothing, which looks like a run that did not measure it.
template <class E>
void refuse_unknown_name(const std::string& column, const std::string& value) {
  if (column != NameTable<E>::what || find_named<E>(value)) return;
  throw Error(ErrorKind::input, fmt::format("--where {0}={1}: unknown {0} \"{1}\"; {2}", column,
                                            value, suggestion(value, all_names<E>())));
}

}  // namespace

std::vector<NamedQuery> named_queries() {
  std::vector<NamedQuery> queries;
  for (const auto& query : kFigureQueries) {
    queries.push_back({std::string(query.name), std::string(query.title), std::string(query.row)});
  }
  for (const auto& query : run_queries()) {
    queries.push_back({std::string(query.name), std::string(query.title), std::string(query.row)});
  }
  for (const auto& [name, sql] : embedded::query_list()) {
    queries.push_back({std::string(name), header_of(sql, "title"), header_of(sql, "row")});
  }
  queries.push_back({"catalogue", "Catalogue",
                     "one framework, library or device that the studies name, and what of it runs "
                     "here; of no run"});
  queries.push_back({"schema", "Schema", "one column of a table or view, for your own SQL"});
  return queries;
}

std::string judging_method(const std::string& query) {
  if (query == "stragglers") return straggler_method();
  if (query == "copy_share") return copy_path_method();
  if (query == "fit") return fit_method();
  constexpr std::array<std::string_view, 13> judging{
      "overhead", "best",  "axis",  "crossover", "tradeoffs",   "findings",       "floor",
      "atlas",    "flips", "tiers", "rankings",  "page_faults", "ps_against_ring"};
  if (std::find(judging.begin(), judging.end(), query) == judging.end()) return "";
  return fmt::format(
      "method: {}sure (FASTER, SLOWER) = the ratio lies outside {:g} % at a false discovery rate "
      "of "
      "5 % over all rows judged of a run (Benjamini-Hochberg); SAME = its 95 % interval lies "
      "inside; what was timed by different cadences is not judged: a mean of calls back to back "
      "(batched) is shorter than a call alone (isolated)",
      query == "overhead" ? "ratio = the typical one of a block's launches, not that of the two "
                            "medians; difference = what the slower takes more / the faster's time, "
                            "below 0 where bare metal is the slower; "
      : query == "flips"  ? "equal workers: a server and N workers are N + 1 ranks, a ring of N is "
                            "N; ratio = time of b / time of a, so above 1 a is faster; "
      : query == "tiers" ? "exchange (push_pull or allreduce) and training count workers as ranks; "
                           "kept = time of the nearest tier's configuration here / of the best "
                           "here; "
                         : "",
      100 * EquivalenceBand{}.relative);
}

namespace {

Table table_of(const Reader& reader, const std::string& name, const QueryScope& scope) {
  const auto is_pooled = [&](const FigureQuery& query) { return query.name == name; };
  if (scope.pool && std::none_of(kFigureQueries.begin(), kFigureQueries.end(), is_pooled)) {
    throw Error(ErrorKind::input, fmt::format("query {}: --pool is for queries of figures, such as "
                                              "latency, overhead and best",
                                              name));
  }
  if (name == "schema" || name == "catalogue") {
    Table table = name == "schema" ? schema_table(reader) : catalogue_table();
    keep_rows_where(table, scope);
    return table;
  }
  for (const auto& query : kFigureQueries) {
    if (query.name != name) continue;
    const auto runs = runs_in_scope(reader, scope, scope.all_runs);
    Table table = figure_table(reader, query, runs, scope);
    if (runs.size() < 2 || (scope.pool && of_one_run(table))) drop_run_column(table);
    return table;
  }
  for (const auto& query : run_queries()) {
    if (query.name != name) continue;
    const auto runs = runs_in_scope(reader, scope, scope.all_runs);
    Table table = query.table(reader, runs, scope);
    keep_rows_where(table, scope);
    if (runs.size() < 2) drop_run_column(table);
    return table;
  }
  for (const auto& [known, sql] : embedded::query_list()) {
    if (known != name) continue;
    const bool every_run = header_of(sql, "scope") == "all" && scope.runs.empty();
    const auto runs = runs_in_scope(reader, scope, scope.all_runs || every_run);
    Table table = query_each(reader, sql, runs);
    keep_rows_where(table, scope);
    if (runs.size() < 2 && !every_run) drop_run_column(table);
    return table;
  }
  std::vector<std::string> names;
  for (const auto& query : named_queries()) names.push_back(query.name);
  throw Error(ErrorKind::input,
              fmt::format("unknown query \"{}\"; {}", name, suggestion(name, names)));
}

}  // namespace

bool takes_vary(const std::string& query) {
  return query == "axis" || query == "crossover" || query == "tradeoffs";
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
  if (text.find_first_of(" \t\r\n;(") == std::string::npos) return named_query(reader, text, scope);
  if (!scope.runs.empty() || scope.all_runs || scope.pool || !scope.where.empty()) {
    throw Error(
        ErrorKind::input,
        "query: --run, --all, --pool and --where choose rows of named queries; in SQL write them "
        "as WHERE run_id = '...'");
  }
  return reader.query(text);
}

}  // namespace dynamiccl
