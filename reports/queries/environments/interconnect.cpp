#include "reports/model/launch_links.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

std::string source_of(const std::optional<LinkRate>& rate) { return rate ? rate->source : ""; }

std::optional<double> value_of(const std::optional<LinkRate>& rate) {
  return rate ? std::optional(rate->bytes_per_s) : std::nullopt;
}

Table interconnect_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                         const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const Table found = reader.query(
        "SELECT run_id, environment, backend, regime_name, count(*) AS launches, "
        "max(launch_row) AS launch FROM v_launch WHERE run_row = ?1 AND launch_status = 'ok' "
        "AND regime_id IS NOT NULL GROUP BY environment, backend, regime_id "
        "ORDER BY environment, backend, regime_name",
        {run});
    const TableView rows(found);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto links = links_of_launch(reader, rows.integer(i, "launch"));
      const auto ratio = intra_over_inter(links.intra, links.inter);
      table.rows.push_back(
          {rows.text(i, "run_id"), rows.text(i, "environment"), rows.text(i, "backend"),
           rows.text(i, "regime_name"), rows.integer(i, "launches"), links.intra_link,
           or_null(value_of(links.intra)), or_null(source_of(links.intra)), links.inter_link,
           links.inter_tier, or_null(value_of(links.inter)), or_null(source_of(links.inter)),
           or_null(ratio), interconnect_shape(ratio)});
    }
  }
  return table;
}

}  // namespace

Query interconnect_query() {
  return {.title = "Interconnect",
          .row =
              "one environment and backend: what its links inside and outside can carry, and "
              "whether that is flat (inside below 1.5 x outside)",
          .columns = R"(
run_id environment backend regime launches
intra_link | text | link inside a host
intra_bytes_per_s | bytes_per_s, real | what it can carry
intra_rate_of | text | where that is known from
inter_link | text | link outside
inter_tier | text | its class
inter_bytes_per_s | bytes_per_s, real | what it can carry
inter_rate_of | text | where that is known from
intra_over_inter | real | rate inside over rate outside
interconnect | text | flat, steep or unknown
)",
          .needs = "ranks of our own worker or trainer; tables of other programs do not say it",
          .of_runs = interconnect_table};
}

}  // namespace dynamiccl
