#include <fmt/format.h>

#include "core/statistics/statistics.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// From this share of copies on they tell of a path by way of host memory: inferred.
constexpr double kStagedFromPercent = 10;

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
  return share_percent->high < kStagedFromPercent ? "undetermined" : "UNCLEAR";
}

Table copy_share_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  for (const auto& f : figures) {
    const auto h2d = f.component_us(&LaunchFigure::h2d_us);
    const auto d2h = f.component_us(&LaunchFigure::d2h_us);
    // Without a timed copy the share is not zero but unknown, or there is nothing to copy.
    if (!h2d && !d2h) continue;
    const double copies = h2d.value_or(0) + d2h.value_or(0);
    const auto share = copy_share(f);
    auto row = cell_values(f);
    append_values(row, {launches_of(f), f.median_us(), copies, or_null(share.percent)});
    add_bounds(row, share.interval);
    row.emplace_back(path_of(share.interval));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string copy_path_method() {
  return fmt::format(
      "method: copies_share = median over launches of the copies' share of each launch's time, "
      "with its 95 % interval; path = what this share shows, inferred and not read from the "
      "library: staged = the 95 % interval over launches is above {0:g} %, so that the library is "
      "not given device memory; undetermined = it is below (large messages copy fast, this is no "
      "proof of a path without copies); UNCLEAR = it holds {0:g} %, or there are fewer than three "
      "launches",
      kStagedFromPercent);
}

}  // namespace

Query copy_share_query() {
  return {.title = "Share of memory copies",
          .row = "one cell with copies between host and device: their share of its time",
          .columns = R"(
@cell launches
median_us | us, real | median over launches of the launches' medians
copies_us | us, real | copies between host and device
copies_share_percent | percent, real, interval | their share of the time
path | text | what that share points to, inferred
)",
          .method = copy_path_method(),
          .needs = "buffers of GPUs that the backend copies by way of the host",
          .measured_by = "run experiments/gpu_environments.toml",
          .of_figures = copy_share_table};
}

}  // namespace dynamiccl
