#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/table_view.hpp"
#include "tests/orchestrator/cli/program.hpp"
#include "tests/orchestrator/import/import_tables.hpp"

namespace dynamiccl::testing {

/// What an import left: its exit code, its words, and "collective ranks size side status launches
/// median knobs" of each cell.
struct Outcome {
  int exit_code = 0;
  std::string err;
  std::set<std::string> cells;
  std::string status;  ///< of the run
};

inline Outcome import_file(const std::string& path, const std::vector<std::string>& options) {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  std::vector<std::string> words{"import", path, "--db", db};
  words.insert(words.end(), options.begin(), options.end());
  const auto result = run(words);
  Outcome outcome{result.exit_code, result.err, {}, ""};
  if (!std::filesystem::exists(db)) return outcome;
  const Table table = Reader(db).query(
      "SELECT c.collective, c.ranks, c.size_bytes, c.in_place, c.status, c.launches, c.cell_knobs, "
      "(SELECT avg(m.median_us) FROM measurement m WHERE m.cell_id = c.cell_row) AS median_us, "
      "r.status AS run_status FROM v_cell c JOIN run r ON r.id = c.run_row");
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    outcome.status = rows.text(i, "run_status");
    outcome.cells.insert(fmt::format(
        "{} {} {} {} {} {} {:.4g} {}", rows.text(i, "collective"), rows.integer(i, "ranks"),
        rows.integer(i, "size_bytes"), rows.integer(i, "in_place") != 0 ? "in" : "out",
        rows.text(i, "status"), rows.integer(i, "launches"), rows.real(i, "median_us").value_or(0),
        rows.text(i, "cell_knobs")));
  }
  return outcome;
}

inline Outcome import_case(const std::string& name, const std::vector<std::string>& options) {
  return import_file(kTables + "cases/" + name, options);
}

inline Outcome import_text(const std::string& text, const std::vector<std::string>& options) {
  const Folder folder;
  return import_file(folder.file("x.txt", text), options);
}

/// A table of nccl-tests of two sizes and two ranks.
inline const std::string kSmallTable =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20 agg "
    "iters: 1 validation: 1 graph: 0\n"
    "#  Rank  0 Group  0 Pid     10 on    host-a device  0 [0x10] GPU X\n"
    "#  Rank  1 Group  0 Pid     10 on    host-a device  1 [0x20] GPU X\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    " "
    " algbw   busbw #wrong\n"
    "           8             2     float     sum      -1    10.00    0.00    0.00      0    11.00 "
    " "
    "  0.00    0.00      0\n"
    "          16             4     float     sum      -1    12.00    0.00    0.00      0    13.00 "
    " "
    "  0.00    0.00      0\n"
    "# Out of bounds values : 0 OK\n"
    "# Avg bus bandwidth    : 0.001\n";

}  // namespace dynamiccl::testing
