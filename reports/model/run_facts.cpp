#include "reports/model/run_facts.hpp"

#include <fmt/format.h>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

/// A run of `tune -- COMMAND` has choices and no cells: the job is somebody's own.
std::string without_cells(const Reader& reader, const std::string& run_uuid) {
  const Table counts = reader.query(
      "SELECT count(*) AS n FROM decision d JOIN tuning t ON t.id = d.tuning_id "
      "JOIN run r ON r.id = t.run_id WHERE r.uuid = ?1",
      {run_uuid});
  const auto choices = static_cast<std::size_t>(TableView(counts).integer(0, "n"));
  return choices == 0 ? "no cells"
                      : fmt::format("{} of a search, no cells (query decisions)",
                                    counted(choices, "choice"));
}

}  // namespace

Table cells_without_result(const Reader& reader, const std::string& run_uuid, bool unsupported) {
  return reader.query(
      "SELECT environment, backend, architecture, ranks, count(*) AS cells, status, reason "
      "FROM v_cell WHERE run_id = ?1 AND status <> 'ok' AND (status = 'unsupported') = ?2 "
      "GROUP BY environment, backend, architecture, ranks, status, reason "
      "ORDER BY environment, backend, architecture, ranks, status",
      {run_uuid, static_cast<std::int64_t>(unsupported ? 1 : 0)});
}

std::string cell_counts(const Reader& reader, const std::string& run_uuid) {
  const Table counts = reader.query(
      "SELECT status, count(*) AS n FROM v_cell WHERE run_id = ?1 GROUP BY status "
      "ORDER BY status = 'ok' DESC, status",
      {run_uuid});
  const TableView rows(counts);
  std::int64_t all = 0;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    all += rows.integer(i, "n");
    parts.push_back(fmt::format("{} {}", rows.integer(i, "n"), rows.text(i, "status")));
  }
  if (all == 0) return without_cells(reader, run_uuid);
  return fmt::format("{}: {}", counted(all, "cell"), join(parts, ", "));
}

std::vector<std::int64_t> run_scope(const Reader& reader, const std::string& run_uuid) {
  const Table row = reader.query("SELECT id FROM run WHERE uuid = ?1", {run_uuid});
  return {TableView(row).integer(0, "id")};
}

std::string run_uuid_of(const Reader& reader, std::int64_t run) {
  const Table table = reader.query("SELECT uuid FROM run WHERE id = ?1", {run});
  return TableView(table).text(0, "uuid");
}

}  // namespace dynamiccl
