#include <algorithm>
#include <map>

#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/launch_links.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// The rate of the link that carried a group's payload. Only one that every rank used and whose
/// rate binds it: TCP between ranks of one network namespace never leaves the machine.
std::optional<LinkRate> rate_that_binds(const std::string& transports, const LaunchLinks& links) {
  if (transports == "p2p") return links.intra;
  if ((transports == "tcp" || transports == "net") && links.apart) return links.inter;
  return std::nullopt;
}

std::map<std::string, LinkRate> binding_rates(const Reader& reader, std::int64_t run) {
  const Table groups = reader.query(
      "SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, "
      "max(v.launch_row) AS launch, group_concat(DISTINCT t.transport) AS transports "
      "FROM v_launch v JOIN transport t ON t.launch_id = v.launch_row "
      "WHERE v.run_row = ?1 AND v.launch_status = 'ok' AND t.payload_bytes > 0 "
      "AND v.regime_id IS NOT NULL GROUP BY v.group_row",
      {run});
  const TableView rows(groups);
  std::map<std::string, LinkRate> rates;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto links = links_of_launch(reader, rows.integer(i, "launch"));
    if (const auto rate = rate_that_binds(rows.text(i, "transports"), links))
      rates.emplace(group_key(group_figure(rows, i)), *rate);
  }
  return rates;
}

double bandwidth_of(const CellFigure& f) {
  return f.busbw_bytes_per_s().value_or(f.algbw_bytes_per_s());
}

/// The size with the largest effective bandwidth of each operation.
std::map<std::string, const CellFigure*> best_sizes(const std::vector<CellFigure>& figures) {
  std::map<std::string, const CellFigure*> best;
  for (const auto& f : figures) {
    const CellFigure*& known = best[key_without(f, "size_bytes")];
    if (known == nullptr || bandwidth_of(f) > bandwidth_of(*known)) known = &f;
  }
  return best;
}

/// How many times the bandwidth of `best` is that of `f`.
Ratio gap_between(const CellFigure& f, const CellFigure& best) {
  if (&f == &best) return Ratio{1.0};
  Ratio gap = time_ratio(f, best);
  const double sizes = static_cast<double>(best.size_bytes) / static_cast<double>(f.size_bytes);
  gap.value *= sizes;
  if (gap.interval) {
    gap.interval->low *= sizes;
    gap.interval->high *= sizes;
  }
  return gap;
}

/// Why a bandwidth by formula is more than its link carries; nothing where it is not.
Value why_above(const CellFigure& f, double share) {
  constexpr double kRounding = 1.02;
  if (share <= kRounding) return {};
  const bool in_switch =
      std::any_of(f.algorithms_ran.begin(), f.algorithms_ran.end(), [](const std::string& name) {
        return name.starts_with("nvls") || name.starts_with("collnet");
      });
  return in_switch ? "the switch sums: the factor counts what ranks would send among each other, "
                     "and each sends its data once"
                   : "the factor counts more than this link carried: some of it took another way, "
                     "or the rate is not this link's";
}

std::vector<Value> line_rate_row(const CellFigure& f, const CellFigure& best,
                                 const LinkRate* rate) {
  auto row = cell_values(f);
  row.emplace_back(static_cast<std::int64_t>(f.launches.size()));
  const double bandwidth = bandwidth_of(f);
  row.emplace_back(bandwidth);
  auto interval = f.interval();
  if (interval) {
    // The longest time is the lowest bandwidth.
    const double product = bandwidth * f.median_us();
    interval = Interval{product / interval->high, product / interval->low, interval->confidence,
                        interval->method};
  }
  add_bounds(row, interval);
  // Without a factor nothing says how much of the payload one link carries.
  if (rate != nullptr && f.busbw_factor) {
    row.emplace_back(rate->bytes_per_s);
    row.emplace_back(rate->source);
    row.emplace_back(100 * bandwidth / rate->bytes_per_s);
    row.push_back(why_above(f, bandwidth / rate->bytes_per_s));
  } else {
    row.resize(row.size() + 4);
  }
  row.emplace_back(100 * bandwidth / bandwidth_of(best));
  row.emplace_back(best.size_bytes);
  const Ratio gap = gap_between(f, best);
  row.emplace_back(gap.value);
  add_bounds(row, gap.interval);
  return row;
}

Table line_rate_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const auto figures = load_figures(reader, {run});
    const auto rates = binding_rates(reader, run);
    const auto best = best_sizes(figures);
    for (const auto& f : figures) {
      if (f.size_bytes == 0 || f.median_us() <= 0) continue;
      const auto rate = rates.find(group_key(f));
      table.rows.push_back(line_rate_row(f, *best.at(key_without(f, "size_bytes")),
                                         rate == rates.end() ? nullptr : &rate->second));
    }
  }
  return table;
}

}  // namespace

Query line_rate_query() {
  return {.title = "Bandwidth against the line rate",
          .row =
              "one cell: effective bandwidth, its share of the link's rate where that is known and "
              "of the best size, and how far the best size is ahead",
          .columns = R"(
@cell launches
bandwidth_bytes_per_s | bytes_per_s, real, interval | effective bandwidth
line_rate_bytes_per_s | bytes_per_s, real | what the link that carried it can carry
line_rate_of | text | where that is known from
of_line_rate_percent | percent, real | bandwidth over line rate
above_line_rate | text | where it is more than that: why
of_best_size_percent | percent, real | bandwidth over that of the best size
best_size_bytes | bytes, integer, exact | size of the largest bandwidth
gap_to_best | real, interval | bandwidth of the best size over this one's
)",
          .of_runs = line_rate_table};
}

}  // namespace dynamiccl
