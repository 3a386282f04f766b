#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/printable_json.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/started_as.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/run/console.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/no_rows.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/render.hpp"
#include "reports/render/run_diff.hpp"
#include "reports/render/run_page.hpp"
#include "reports/render/step_trace.hpp"

namespace dynamiccl {

template <>
struct NameTable<OutputFormat> {
  static constexpr std::string_view what = "format";
  static constexpr std::array entries{
      Named{OutputFormat::text, "table"}, Named{OutputFormat::markdown, "markdown"},
      Named{OutputFormat::csv, "csv"}, Named{OutputFormat::json, "json"}};
};

namespace {

OutputFormat format_of(const std::string& name, const Shared& shared) {
  refuse_two_formats(shared, name);
  if (shared.json) return OutputFormat::json;
  return name.empty() ? OutputFormat::text : parse_named<OutputFormat>(name);
}

void add_format_option(CLI::App& verb, std::string& format) {
  add_choice_option(verb, "--format", format, all_names<OutputFormat>(), "how it is written");
}

struct QueryArguments {
  std::string what;
  std::vector<std::string> runs;
  bool all = false;
  bool pool = false;
  std::vector<std::string> where;
  std::string vary = "environment";
  std::string format;
  int within_s = 300;  ///< named queries of large databases take seconds
  bool markdown = false;
  bool explain = false;
};

/// The sentence in lines of the terminal; the command below it stays one line, to be copied.
void tell_why_empty(const std::string& why, const Shared& shared) {
  const auto end = std::min(why.find('\n'), why.size());
  tell(printable(broken_text(why.substr(0, end), stdout_columns()) +
                 with_pasteable_commands(why.substr(end), shared.argv.front())));
}

void add_time_option(CLI::App& verb, int& seconds) {
  verb.add_option("--within", seconds, "seconds after which an unfinished query is ended")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
}

/// What databases hold of other people's text steers no terminal. Fields of CSV are printable.
std::string for_terminals(const std::string& text, OutputFormat format) {
  if (format == OutputFormat::json) return printable_json(text);
  return format == OutputFormat::csv ? text : printable(text);
}

/// The named queries for programs.
Table query_table() {
  Table table{{"name", "theme", "title", "row"}, {}};
  for (const auto& query : all_queries())
    table.rows.push_back({query.name, query.theme, query.title, query.row});
  return table;
}

/// The named queries under their themes, or those that most ask first.
std::string query_list(bool all, std::size_t columns) {
  constexpr std::array<std::string_view, 10> kFirst{
      "latency", "bandwidth", "overhead",       "components", "crossover",
      "best",    "training",  "time_to_target", "noise",      "runs"};
  std::string out;
  for (const auto& theme : query_themes()) {
    std::vector<std::pair<std::string, std::string>> entries;
    for (const auto& query : all_queries())
      if (query.theme == theme.folder &&
          (all || std::find(kFirst.begin(), kFirst.end(), query.name) != kFirst.end()))
        entries.emplace_back(query.name, all ? query.row : query.title);
    if (!entries.empty()) out += fmt::format("{}:\n{}", theme.title, two_columns(entries, columns));
  }
  if (!all) out += fmt::format("all {}: dynamiccl query --all; ", all_queries().size());
  return out + "anything else is taken as SQL and run read-only\n";
}

QueryScope asked_scope(const QueryArguments& arguments) {
  if (arguments.all && !arguments.runs.empty())
    throw Error(ErrorKind::input,
                "query: --run names runs and --all takes every run; give one of the two");
  QueryScope scope;
  scope.runs = arguments.runs;
  scope.all_runs = arguments.all;
  scope.pool = arguments.pool;
  scope.vary = arguments.vary;
  for (const auto& condition : arguments.where) {
    const auto equals = condition.find('=');
    if (equals == std::string::npos)
      throw Error(ErrorKind::input, fmt::format("--where {}: expected COLUMN=VALUE, as in "
                                                "--where backend=gloo",
                                                condition));
    scope.where.emplace_back(condition.substr(0, equals), condition.substr(equals + 1));
  }
  return scope;
}

/// What a query's rows and columns are.
void explain_query(const Query& query, OutputFormat format) {
  Table table{{"column", "unit", "type", "meaning"}, {}};
  for (const auto& column : parse_columns(query.columns, query.name))
    table.rows.push_back(
        {column.name == "*" ? std::string("one for each value") : column.name,
         column.unit == Unit::none ? Value{} : Value{std::string(unit_text(column.unit))},
         std::string(type_text(column.type)), column.meaning});
  const auto width = stdout_columns();
  std::string text = render_table(table, format, {}, width);
  if (format == OutputFormat::text) {
    const std::string method = query.method.empty() ? "" : "\n" + query.method + "\n";
    text = broken_text(fmt::format("{}: {}\nA row is {}.\n\n", query.name, query.title, query.row),
                       width) +
           text + broken_text(method, width);
  }
  fmt::print("{}", text);
}

/// The list of queries has nothing to choose from, and "" is the variable that a script forgot.
void refuse_what_a_list_ignores(const QueryArguments& arguments, bool named) {
  if (named)
    throw Error(ErrorKind::input,
                "query: \"\" names no query; without a name the queries are listed");
  const bool chooses =
      !arguments.runs.empty() || arguments.pool || !arguments.where.empty() || arguments.explain;
  if (chooses)
    throw Error(ErrorKind::input,
                "query: --run, --pool, --where and --explain are about a query: name one, "
                "as in query latency; without a name the queries are listed");
}

/// Under rows of simulated environments: what their times are.
void tell_simulated(const Reader& reader, const Query& query, const Table& table,
                    const QueryScope& scope) {
  const auto at = std::find(table.columns.begin(), table.columns.end(), "environment");
  if (at == table.columns.end()) return;
  std::set<std::string> environments;
  for (const auto& row : table.rows)
    if (const auto* name =
            std::get_if<std::string>(&row[static_cast<std::size_t>(at - table.columns.begin())]))
      environments.insert(*name);
  std::set<std::string> notes;
  std::vector<std::string> runs;
  for (const auto& run : scope.runs) runs.push_back(reader.resolve_run(run));
  if (runs.empty())
    runs.push_back(scope.all_runs || query.every_run || query.of_database != nullptr
                       ? ""
                       : reader.resolve_run("last"));
  for (const auto& run : runs)
    for (auto& note : simulated_notes(reader, run, environments)) notes.insert(std::move(note));
  for (const auto& note : notes) tell(printable(broken_text(note, stdout_columns())) + "\n");
}

/// @param named a name was given, be it empty
/// @param varies --vary was given
void answer_query(const QueryArguments& arguments, bool named, bool varies, const Shared& shared) {
  if (arguments.markdown) {
    fmt::print("{}", queries_markdown());
    return;
  }
  const Query* query = find_query(trim(arguments.what));
  if (varies && (query == nullptr || !query->takes_vary))
    throw Error(ErrorKind::input,
                fmt::format("query {}: --vary goes with the queries axis, crossover and tradeoffs",
                            arguments.what));
  if (trim(arguments.what).empty()) {
    refuse_what_a_list_ignores(arguments, named);
    if (format_of(arguments.format, shared) == OutputFormat::text)
      fmt::print("{}", query_list(arguments.all, stdout_columns()));
    else
      fmt::print("{}", render_table(query_table(), format_of(arguments.format, shared)));
    return;
  }
  const auto format = format_of(arguments.format, shared);
  if (arguments.explain) {
    explain_query(query_named(trim(arguments.what)), format);
    return;
  }
  Reader reader(shared.db);
  reader.end_after(std::chrono::seconds(arguments.within_s), [] {
    tell(fmt::format("dynamiccl: {}\n", Reader::late_query()));
    std::_Exit(exit_code::kUsage);
  });
  const QueryScope scope = asked_scope(arguments);
  const Table table = any_query(reader, arguments.what, scope);
  const std::string shown = for_terminals(
      render_table(table, format, columns_of(arguments.what, table), stdout_columns()), format);
  fmt::print("{}", format == OutputFormat::text ? coloured_for_stdout(shown) : shown);
  // An empty table alone would be read as an answer.
  if (table.rows.empty() && query != nullptr) {
    if (!shared.quiet) tell_why_empty(why_no_rows(reader, *query, scope), shared);
    return;
  }
  if (!shared.quiet && query != nullptr) tell_simulated(reader, *query, table, scope);
  const bool for_people = format == OutputFormat::text || format == OutputFormat::markdown;
  if (for_people && query != nullptr && !query->method.empty())
    // A document is the same, however wide the terminal is that it was made on.
    fmt::print("\n{}\n",
               broken_text(query->method, format == OutputFormat::text ? stdout_columns() : 0));
}

}  // namespace

void add_query_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("query", "answer a named query or read-only SQL");
  auto arguments = std::make_shared<QueryArguments>();
  const auto* name = verb->add_option(
      "NAME", arguments->what, "named query or SQL; none lists some names, with --all every one");
  verb->add_option("--run", arguments->runs,
                   "run id, its beginning, last, last~1, last-tune or last-import")
      ->take_all()
      ->allow_extra_args(false);
  verb->add_flag("--all", arguments->all,
                 "all runs instead of the newest; without a name: list all queries");
  verb->add_flag("--pool", arguments->pool,
                 "launches of the chosen runs as one run's, where machine and protocol are alike");
  verb->add_option("--where", arguments->where, "COLUMN=VALUE must hold")
      ->take_all()
      ->allow_extra_args(false);
  const auto* vary = verb->add_option(
      "--vary", arguments->vary, "axis, crossover, tradeoffs: the axis that varies (environment)");
  verb->add_flag("--markdown", arguments->markdown,
                 "the page of all queries with their columns, instead of an answer");
  verb->add_flag("--explain", arguments->explain,
                 "what the query's rows and columns are, instead of an answer");
  add_format_option(*verb, arguments->format);
  add_time_option(*verb, arguments->within_s);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer([] {
    return "Examples:\n"
           "  dynamiccl query overhead\n"
           "  dynamiccl query overhead --explain                  what its columns are\n"
           "  dynamiccl query coverage --json\n"
           "  dynamiccl query latency --all --pool\n"
           "  dynamiccl query latency --where backend=gloo --where size_bytes=64KiB --format csv\n"
           "  dynamiccl query 'SELECT environment, count(*) FROM v_launch GROUP BY environment'\n" +
           query_list(false, stdout_columns());
  });
  verb->callback([arguments, name, vary, &shared] {
    answer_query(*arguments, name->count() > 0, vary->count() > 0, shared);
  });
}

namespace {

/// What people choose a run by; the rest is for programs, and `show` has it. Where a run was
/// imported, from what.
Table listed_for_people(const Table& runs) {
  std::vector<std::pair<std::string, std::string>> kept{
      {"run_id", "run_id"},           {"name", "name"},   {"status", "status"},
      {"started_utc", "started_utc"}, {"cells", "cells"}, {"attempts", "launches"},
      {"launches_ok", "ok"}};
  const auto place_of = [&](const std::string& column) {
    const auto found = std::find(runs.columns.begin(), runs.columns.end(), column);
    DYN_ASSERT(found != runs.columns.end(), "`list` names columns of the query runs");
    return static_cast<std::size_t>(found - runs.columns.begin());
  };
  const std::size_t imported = place_of("imported_format");
  if (std::any_of(runs.rows.begin(), runs.rows.end(), [&](const auto& row) {
        return !std::holds_alternative<std::monostate>(row[imported]);
      }))
    kept.emplace_back("imported_format", "imported");
  Table listed;
  std::vector<std::size_t> places;
  for (const auto& [column, heading] : kept) {
    places.push_back(place_of(column));
    listed.columns.push_back(heading);
  }
  for (const auto& row : runs.rows) {
    listed.rows.emplace_back();
    for (const std::size_t place : places) listed.rows.back().push_back(row[place]);
  }
  return listed;
}

}  // namespace

void add_list_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("list", "the runs in the database, newest first");
  auto format = std::make_shared<std::string>();
  add_format_option(*verb, *format);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer("Example:\n  dynamiccl list --json");
  verb->callback([format, &shared] {
    const auto as = format_of(*format, shared);
    auto runs = list_runs(Reader(shared.db));
    if (as == OutputFormat::text) runs = listed_for_people(runs);
    fmt::print("{}", for_terminals(render_table(runs, as, {}, stdout_columns()), as));
  });
}

namespace {

struct ShowArguments {
  std::vector<std::string> runs;
  bool diff = false;
  std::string trace;  ///< a training cell
  std::string format;
};

std::string shown(const ShowArguments& arguments, const Shared& shared) {
  const auto& runs = arguments.runs;
  const auto as = format_of(arguments.format, shared);
  if (arguments.diff ? runs.size() != 2 : runs.size() > 1)
    throw Error(ErrorKind::input,
                fmt::format("show: {} runs given; show takes one, show --diff takes two, as in "
                            "show --diff last~1 last",
                            runs.size()));
  const bool traces = !arguments.trace.empty();
  if (traces && (arguments.diff || !arguments.format.empty()))
    throw Error(ErrorKind::input,
                "show --trace: a trace is of one run and always Chrome's JSON; leave out --diff "
                "and --format, as in show last --trace dear > trace.json");
  const Reader reader(shared.db);
  const auto width = stdout_columns();
  if (arguments.diff)
    return for_terminals(render_run_diff(reader, runs[0], runs[1], as, width), as);
  const std::string run = runs.empty() ? "last" : runs.front();
  return traces ? printable_json(step_trace(reader, run, arguments.trace).dump()) + "\n"
                : for_terminals(render_run(reader, run, as, width), as);
}

}  // namespace

void add_show_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("show", "one run with every launch and its provenance");
  auto arguments = std::make_shared<ShowArguments>();
  verb->add_option("RUN", arguments->runs,
                   "run id, its beginning, last or last~1; two with --diff");
  verb->add_flag("--diff", arguments->diff,
                 "what differs between two runs, and their figures side by side");
  verb->add_option("--trace", arguments->trace,
                   "one step of a training cell (its id or method), all ranks, as trace events for "
                   "ui.perfetto.dev or chrome://tracing");
  add_format_option(*verb, arguments->format);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n  dynamiccl show last\n  dynamiccl show 3fa9 --json\n"
      "  dynamiccl show --diff last~1 last\n  dynamiccl show last --trace dear > trace.json");
  verb->callback([arguments, &shared] { fmt::print("{}", shown(*arguments, shared)); });
}

}  // namespace dynamiccl
