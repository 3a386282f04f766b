#include "reports/figure_queries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/table_view.hpp"

namespace dynamiccl {
namespace {

void append(std::vector<Value>& row, std::vector<Value> more) {
  std::move(more.begin(), more.end(), std::back_inserter(row));
}

std::string joined(const std::set<std::string>& texts) {
  return join({texts.begin(), texts.end()}, ", ");
}

std::int64_t count_of(const CellFigure& figure) {
  return static_cast<std::int64_t>(figure.launches.size());
}

/// The copies' share of a cell's time, percent: the median of its launches' shares, so that value
/// and interval are of the same figures. The median copy over the median time is another number,
/// which can lie outside.
struct CopyShare {
  std::optional<double> percent;
  std::optional<Interval> interval;
};

CopyShare copy_share(const CellFigure& figure) {
  std::vector<double> shares;
  for (const auto& launch : figure.launches) {
    // Without a timed copy the share is not zero but unknown.
    if (launch.median_us <= 0 || (!launch.h2d_us && !launch.d2h_us)) continue;
    shares.push_back(100 * (launch.h2d_us.value_or(0) + launch.d2h_us.value_or(0)) /
                     launch.median_us);
  }
  if (shares.empty()) return {};
  const bool of_all = shares.size() == figure.launches.size();
  return {median(shares), of_all ? launch_interval(shares) : std::nullopt};
}

std::string path_of(const std::optional<Interval>& share_percent) {
  if (!share_percent) return "UNCLEAR";
  if (share_percent->low > kStagedFromPercent) return "staged (inferred)";
  return share_percent->high < kStagedFromPercent ? "not told" : "UNCLEAR";
}

/// "X % slower" divides the difference by the faster time, whichever of the two that is;
/// below 0 where the environment is the faster one.
double signed_difference_percent(double ratio) {
  return ratio < 1 ? -percent_faster(1, ratio) : percent_faster(ratio, 1);
}

}  // namespace

std::string stored_value(const std::string& column, const std::string& wanted) {
  if (column == "size_bytes") return std::to_string(parse_bytes(wanted).count());
  if (column == "in_place") {
    if (wanted == "true" || wanted == "1") return "1";
    if (wanted == "false" || wanted == "0") return "0";
    throw Error(ErrorKind::input, fmt::format("--where in_place={}: is either true (one buffer for "
                                              "both directions) or false",
                                              wanted));
  }
  if (column == "ranks") {
    std::int64_t ranks = 0;
    const auto* end = wanted.data() + wanted.size();
    if (std::from_chars(wanted.data(), end, ranks).ptr != end || ranks < 1)
      throw Error(ErrorKind::input,
                  fmt::format("--where ranks={}: expected a whole number of processes, as in "
                              "ranks=2",
                              wanted));
    return std::to_string(ranks);
  }
  return wanted;
}

std::vector<CellFigure> filter_figures(std::vector<CellFigure> figures, const QueryScope& scope) {
  for (const auto& condition : scope.where) {
    const auto& axis = condition.first;
    const std::string value = stored_value(axis, condition.second);
    // An unknown axis is a mistake also where there is no figure to look at.
    axis_value(CellFigure{}, axis);
    std::erase_if(figures, [&](const CellFigure& f) { return axis_value(f, axis) != value; });
  }
  return figures;
}

void add_cell_columns(Table& table) {
  table.columns.emplace_back("run_id");
  const auto& axes = axis_names();
  table.columns.insert(table.columns.end(), axes.begin(), axes.end());
  table.columns.emplace_back("regime");
}

std::vector<Value> cell_values(const CellFigure& f) {
  return {f.run_id,
          f.environment,
          f.backend,
          f.architecture,
          f.collective,
          f.size_bytes,
          f.ranks,
          f.datatype,
          f.algorithm,
          f.in_place,
          f.group_knobs,
          f.cell_knobs,
          or_null(joined(f.regimes))};
}

Table latency_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name : {"launches", "median_us", "median_low_us", "median_high_us",
                           "interval_method", "cadence", "drifting"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& f : figures) {
    auto row = cell_values(f);
    const auto interval = f.interval();
    append(row, {count_of(f), f.median_us()});
    add_bounds(row, interval);
    append(row,
           {or_null(interval ? interval->method : ""), or_null(joined(f.cadences)), f.drifting});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table overhead_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name :
       {"launches", "median_us", "median_low_us", "median_high_us", "bare_metal_us",
        "bare_metal_low_us", "bare_metal_high_us", "ratio", "ratio_low", "ratio_high",
        "ratio_method", "difference_percent", "cadence", "verdict", "note"}) {
    table.columns.emplace_back(name);
  }
  const BareMetal bare_metal(figures);
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  std::vector<std::pair<const CellFigure*, const CellFigure*>> pairs;
  for (const auto& f : figures) {
    const CellFigure* base = bare_metal.of(f);
    if (base == nullptr || base == &f) continue;
    const Ratio ratio = time_ratio(f, *base);
    auto row = cell_values(f);
    append(row, {count_of(f)});
    for (const auto* side : {&f, base}) {
      append(row, {side->median_us()});
      add_bounds(row, side->interval());
    }
    append(row, {ratio.value});
    add_bounds(row, ratio.interval);
    append(row, {or_null(ratio.interval ? ratio.interval->method : ""),
                 signed_difference_percent(ratio.value), or_null(joined(cadences_of({&f, base})))});
    table.rows.push_back(std::move(row));
    runs.push_back(f.run_id);
    ratios.push_back(ratio);
    pairs.emplace_back(&f, base);
  }
  const auto verdicts = judge_by_run(runs, ratios);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const auto [figure, base] = pairs[i];
    append(table.rows[i],
           {std::string(name_of(verdicts[i])),
            or_null(medians_note(*figure, *base, ratios[i], verdicts[i], EquivalenceBand{}))});
  }
  return table;
}

Table bandwidth_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name :
       {"launches", "algbw_bytes_per_s", "algbw_low_bytes_per_s", "algbw_high_bytes_per_s",
        "busbw_bytes_per_s", "busbw_low_bytes_per_s", "busbw_high_bytes_per_s"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& f : figures) {
    auto row = cell_values(f);
    append(row, {count_of(f)});
    const auto interval = f.interval();
    // Bandwidth comes from the median time.
    const auto at = [&](double time_us, double factor) {
      return static_cast<double>(f.size_bytes) / time_us * 1e6 * factor;
    };
    for (const auto& factor : {std::optional(1.0), f.busbw_factor}) {
      if (!factor || f.median_us() <= 0) {
        append(row, {std::monostate{}, std::monostate{}, std::monostate{}});
        continue;
      }
      append(row, {at(f.median_us(), *factor)});
      // A long time is a low bandwidth.
      add_bounds(row, interval ? std::optional(Interval{at(interval->high, *factor),
                                                        at(interval->low, *factor),
                                                        interval->confidence, interval->method})
                               : std::nullopt);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table components_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name : {"launches", "median_us", "collective_us", "h2d_us", "d2h_us", "send_us",
                           "compute_us", "other_us"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& f : figures) {
    auto row = cell_values(f);
    append(row, {count_of(f), f.median_us()});
    std::vector<std::optional<double>> parts;
    double named = 0;
    for (const auto component :
         {&LaunchFigure::collective_us, &LaunchFigure::h2d_us, &LaunchFigure::d2h_us,
          &LaunchFigure::send_us, &LaunchFigure::compute_us}) {
      parts.push_back(f.component_us(component));
      named += parts.back().value_or(0);
    }
    // Medians of parts need not sum to the median of the whole: shares of it do.
    const double scale = named > f.median_us() ? f.median_us() / named : 1;
    for (const auto& part : parts)
      append(row, {part ? Value(*part * scale) : Value(std::monostate{})});
    append(row, {std::max(0.0, f.median_us() - named * scale)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table copy_share_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name : {"launches", "median_us", "copies_us", "copies_share_percent",
                           "copies_share_low_percent", "copies_share_high_percent", "path"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& f : figures) {
    const auto h2d = f.component_us(&LaunchFigure::h2d_us);
    const auto d2h = f.component_us(&LaunchFigure::d2h_us);
    // Without a timed copy the share is not zero but unknown, or there is nothing to copy.
    if (!h2d && !d2h) continue;
    const double copies = h2d.value_or(0) + d2h.value_or(0);
    const auto share = copy_share(f);
    auto row = cell_values(f);
    append(row, {count_of(f), f.median_us(), copies, or_null(share.percent)});
    add_bounds(row, share.interval);
    row.emplace_back(path_of(share.interval));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string copy_path_method() {
  return fmt::format(
      "method: copies_share = median over launches of the copies' share of each launch's time, "
      "with its 95 % interval; path = what this share tells of, inferred and not read from the "
      "library: staged = the 95 % interval over launches is above {0:g} %, so that the library is "
      "not given device memory; not told = it is below (large messages copy fast, this is no "
      "proof of a path without copies); UNCLEAR = it holds {0:g} %, or there are fewer than three "
      "launches",
      kStagedFromPercent);
}

}  // namespace dynamiccl
