#pragma once

#include <string>
#include <utility>
#include <vector>

#include "db/reader.hpp"
#include "db/table.hpp"
#include "profiles/reference.hpp"

namespace dynamiccl {

/// text and markdown are for people: times, sizes and bandwidths with fitting units, a value and
/// its interval in one column. csv (RFC 4180) and json (a list of objects) keep the plain numbers.
enum class OutputFormat { text, markdown, csv, json };

/// @returns the table, ending in a newline
std::string render_table(const Table& table, OutputFormat format);

/// Which rows a named query looks at.
struct QueryScope {
  /// Ids, unique prefixes, "last", "last~1"; empty = the newest run. More than one run: the result
  /// begins with a column run_id.
  std::vector<std::string> runs;
  bool all_runs = false;
  bool pool = false;  ///< the runs as one, where they are alike; queries of figures only
  /// Column = value, all must hold: {"backend", "openmpi"}. Sizes may be written "64KiB".
  std::vector<std::pair<std::string, std::string>> where;
  /// Queries that take it (takes_vary): the axis that varies while all others are fixed.
  std::string vary = "environment";
};

struct NamedQuery {
  std::string name;
  std::string title;
  std::string description;  ///< what a row is
};

/// All named queries in the order of the listing.
std::vector<NamedQuery> named_queries();

/// How the verdicts of a named query's table came about; "" for a query that gives none.
std::string judging_method(const std::string& query);

/// Whether a query looks at QueryScope::vary.
bool takes_vary(const std::string& query);

/// Runs a named query. Figures come from launches and cells with status ok only, each with its
/// number of launches; one launch gives no interval.
/// @throws Error(input) for an unknown name (with the nearest one), run, column or axis, and where
/// nothing is left because --where names a backend, architecture, collective or datatype that there
/// is not
Table named_query(const Reader& reader, const std::string& name, const QueryScope& scope);

/// `query NAME or SQL`: one word is a named query, anything else SQL of the user's own.
/// @throws Error(input) as named_query and Reader::query, also when rows are to be chosen from SQL
Table any_query(const Reader& reader, const std::string& name_or_sql, const QueryScope& scope);

/// The published figures that this program carries.
const ReferenceFigures& published_figures();

/// What `run` prints at its end: a table per operation with medians, intervals and each
/// environment's ratio to bare metal, the method under each, then failures and what is unsupported.
/// @param run_id as Reader::resolve_run takes it
std::string render_answer(const Reader& reader, const std::string& run_id);

/// The report of a run as one Markdown document.
std::string render_report_markdown(const Reader& reader, const std::string& run_id);

/// The report of a run as one HTML page that needs nothing else: charts, tables, causes,
/// provenance.
std::string render_report_html(const Reader& reader, const std::string& run_id);

/// All figures of a run as one table, csv or json: a row per cell.
std::string render_report_figures(const Reader& reader, const std::string& run_id,
                                  OutputFormat format);

/// `list`: a row per run, newest first.
Table list_runs(const Reader& reader);

/// `show RUN`: the run, its groups, every launch with status, reason, duration and command, events
/// and provenance. csv gives the launches alone.
std::string render_run(const Reader& reader, const std::string& run_id, OutputFormat format);

/// `show --diff A B`: settings, host, profiles, images and libraries that differ, then the figures
/// of both side by side. csv gives the figures alone.
std::string render_run_diff(const Reader& reader, const std::string& a, const std::string& b,
                            OutputFormat format);

}  // namespace dynamiccl
