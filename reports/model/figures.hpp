#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "db/reader.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

/// Medians over a launch's iterations, microseconds.
struct LaunchFigure {
  std::int64_t block = 0;
  double median_us = 0;
  std::optional<double> collective_us;
  std::optional<double> h2d_us;
  std::optional<double> d2h_us;
  std::optional<double> send_us;
  std::optional<double> compute_us;
  std::optional<double> device_us;  ///< by the GPU's clock; inside the total, no component of it
  std::string regime;               ///< name of what its ranks detected; "" = not known
  /// How far the median may be from what was measured, where another program printed it with few
  /// digits; 0 for measurements of ours.
  double resolution_us = 0;
  /// Of the median what is left at least without waits for a core: less than 1 where the noise gate
  /// flagged the launch. On a quiet machine a rank waits for its own peers alone.
  double share_at_work = 1;
  std::optional<double> waited_share;  ///< as measurement.waited_share
};

/// All that is known of one cell of one run from the launches that count.
struct CellFigure {
  std::string run_id;
  std::string environment;
  std::string backend;
  std::string architecture;
  std::string collective;
  std::int64_t size_bytes = 0;
  std::int64_t ranks = 0;
  std::string datatype;
  std::string algorithm;
  std::int64_t in_place = 0;
  std::string group_knobs;
  std::string cell_knobs;
  std::optional<double> busbw_factor;
  std::vector<LaunchFigure> launches;
  // The method, as recorded with every launch.
  std::set<std::string> regimes;
  std::set<std::string> cadences;
  std::set<std::string> barriers;
  std::set<std::string> aggregations;
  std::set<std::string> algorithms_ran;
  std::set<std::int64_t> batches;
  std::int64_t drifting = 0;  ///< launches whose first and last third differ

  [[nodiscard]] std::vector<double> medians_us() const;
  /// Median of the launch medians.
  [[nodiscard]] double median_us() const;
  /// Over launches, and at least as wide as the printed digits leave open; nullopt for one launch.
  [[nodiscard]] std::optional<Interval> interval() const;
  /// Median over launches of a component; nullopt when it was not timed.
  [[nodiscard]] std::optional<double> component_us(
      std::optional<double> LaunchFigure::*component) const;
  /// The farthest that a launch's printed digits leave its median open.
  [[nodiscard]] double resolution_us() const;
  /// Median over launches of the share of its time that the rank which waited most had no core.
  [[nodiscard]] std::optional<double> waited_share() const;
  /// Bytes per second; 0 when the time is 0.
  [[nodiscard]] double algbw_bytes_per_s() const;
  [[nodiscard]] std::optional<double> busbw_bytes_per_s() const;
};

/// Cells with at least one launch that counts, in the order of run, operation, size, environment
/// and backend.
/// @param runs row keys of run
std::vector<CellFigure> load_figures(const Reader& reader, const std::vector<std::int64_t>& runs);

/// A figure without launches from a row that has its axes as columns.
CellFigure figure_cell(const TableView& rows, std::size_t row);

/// A figure with the axes of its group alone, from a row that has them as columns.
CellFigure group_figure(const TableView& rows, std::size_t row);
/// Equal for the cells of one group of one run.
std::string group_key(const CellFigure& figure);

/// How the calls of any of these were timed: "batched", "isolated" or, where they are not alike,
/// both. Empty where it is not recorded.
std::set<std::string> cadences_of(const std::vector<const CellFigure*>& figures);

/// @throws Error(input) where one of two environments is simulated and the other is not
void refuse_simulated_beside_measured(const std::string& one, const std::string& other);

/// time of `numerator` / time of `base`: paired by block where they share at least three blocks of
/// one run, else unpaired. Without an interval, so that no verdict comes of it, where the two were
/// not timed by one cadence. With bounds where ranks waited for cores in launches that the noise
/// gate flagged.
Ratio time_ratio(const CellFigure& numerator, const CellFigure& base);
/// The same whatever the cadences are, for those who look at the method themselves.
Ratio time_ratio_anyway(const CellFigure& numerator, const CellFigure& base);

/// "" or what waits for a core have to do with a verdict: "ranks waited for a core 12 % of the time
/// in bare-metal, 71 % in single-docker", before it "at least 1.8: " where it was given all the
/// same.
std::string waits_note(const Ratio& ratio, Verdict verdict, const EquivalenceBand& band);

/// "" or what is to be said of a ratio that points the other way than that of the two medians: the
/// ratio is the typical one of launches, and the launches of a side may be of two kinds.
std::string medians_note(const CellFigure& numerator, const CellFigure& base, const Ratio& ratio,
                         Verdict verdict, const EquivalenceBand& band);

/// How far the first of what can be chosen is ahead: time of the second / time of the first.
/// Without an interval where not all were timed by one cadence, as one of the others may be the
/// fastest; empty for fewer than two.
/// @param fastest_first by median
Ratio lead_ratio(const std::vector<const CellFigure*>& fastest_first);

/// Verdicts of a table's ratios with the band of 2 %, as judge_table gives them to the rows of each
/// run alone: what else the database holds changes none.
/// @param runs of each ratio
std::vector<Verdict> judge_by_run(const std::vector<std::string>& runs,
                                  const std::vector<Ratio>& ratios);

/// The ends of an interval as two values, NULL where there is none.
void add_bounds(std::vector<Value>& row, const std::optional<Interval>& interval);

/// The axes of a cell by name, in the order of the tables.
const std::vector<std::string>& axis_names();
/// @throws Error(input) naming the axes
std::string axis_value(const CellFigure& figure, const std::string& axis);

/// All axes but `axis`, and the run: equal for figures that differ in that axis alone.
std::string key_without(const CellFigure& figure, std::string_view axis);

/// For comparisons of backends: libraries that take their data from the GPU get the knob
/// memory = "device" that host libraries of the same run were given, as both start and end there.
std::vector<CellFigure> with_stated_memory(std::vector<CellFigure> figures);

/// Finds each figure's counterpart on bare metal: same axes but environment "bare-metal".
class BareMetal {
 public:
  explicit BareMetal(const std::vector<CellFigure>& figures);
  /// @returns nullptr when it was not measured; refers to the list given to the constructor
  [[nodiscard]] const CellFigure* of(const CellFigure& figure) const;

 private:
  std::map<std::string, const CellFigure*> by_key_;
};

/// Places environments as the vocabulary lists their kinds, variants behind what they vary.
std::pair<std::size_t, std::string> environment_order(const std::string& environment);

}  // namespace dynamiccl
