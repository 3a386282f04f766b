#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/column.hpp"

namespace dynamiccl {

/// Which rows a named query looks at.
struct QueryScope {
  /// Ids, unique prefixes, "last", "last~1"; empty = the newest run. More than one run: the result
  /// begins with a column run_id.
  std::vector<std::string> runs;
  bool all_runs = false;
  bool pool = false;  ///< the runs as one, where they are alike; not of every query
  CellConditions where;
  /// Queries that take it: the axis that varies while all others are fixed.
  std::string vary = "environment";
};

/// One named query, as its file in queries/THEME/ defines it: a function NAME_query() in NAME.cpp,
/// or the head of NAME.sql. queries/queries.cmake lists the files; name and theme are the path.
/// Rows of a table have run_id first and a value for each of the columns.
struct Query {
  std::string title{};
  std::string row{};      ///< what a row is
  std::string columns{};  ///< as parse_columns() takes them
  std::string method{};   ///< how its verdicts came about; "" = it gives none
  bool takes_vary = false;
  // For who sees no row (queries/no_rows), where the row's own words do not say it:
  std::string needs{};        ///< what must have been measured for one
  std::string measured_by{};  ///< the verb and what follows that measures it; "" = the theme's
  std::string none_means{};   ///< where no row is an answer, which

  // What makes its table: one of these. Where the columns depend on what was measured, the table
  // has their names, else they are filled in.
  Table (*of_figures)(const std::vector<CellFigure>&, const QueryScope&) = nullptr;
  /// Of figures: rows are chosen after the table is made, as it looks at other cells too.
  bool of_all_cells = false;
  /// For what needs more of a run than its figures; runs are row keys of run.
  Table (*of_runs)(const Reader&, const std::vector<std::int64_t>&, const QueryScope&) = nullptr;
  bool pools = false;  ///< of runs: it takes QueryScope::pool, as all queries of figures do
  Table (*of_database)(const Reader&) = nullptr;
  std::string_view sql{};  ///< ?1 = row key of a run, ?2 = published_figures() as JSON
  bool every_run = false;  ///< of SQL and runs: all of them unless some are named

  std::string name{};
  std::string theme{};
};

/// A table without rows of the columns that a query writes down.
Table empty_table(std::string_view columns);

/// What stands under a table whose ratios judge_by_run() judged.
/// @param first what is particular to this table, ending in "; "
std::string verdict_method(const std::string& first = "");

}  // namespace dynamiccl
