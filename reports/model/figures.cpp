#include "reports/model/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/work_settings.hpp"
#include "embedded/query_launch_medians.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

struct Axis {
  std::string_view name;
  std::string (*value)(const CellFigure&);
};

constexpr std::array kAxes{
    Axis{"environment", [](const CellFigure& f) { return f.environment; }},
    Axis{"backend", [](const CellFigure& f) { return f.backend; }},
    Axis{"architecture", [](const CellFigure& f) { return f.architecture; }},
    Axis{"collective", [](const CellFigure& f) { return f.collective; }},
    Axis{"size_bytes", [](const CellFigure& f) { return std::to_string(f.size_bytes); }},
    Axis{"ranks", [](const CellFigure& f) { return std::to_string(f.ranks); }},
    Axis{"datatype", [](const CellFigure& f) { return f.datatype; }},
    Axis{"algorithm", [](const CellFigure& f) { return f.algorithm; }},
    Axis{"in_place", [](const CellFigure& f) { return std::to_string(f.in_place); }},
    Axis{"group_knobs", [](const CellFigure& f) { return f.group_knobs; }},
    Axis{"cell_knobs", [](const CellFigure& f) { return f.cell_knobs; }}};

bool same_cell(const CellFigure& a, const CellFigure& b) {
  return std::tie(a.run_id, a.environment, a.backend, a.architecture, a.collective, a.size_bytes,
                  a.ranks, a.datatype, a.algorithm, a.in_place, a.group_knobs, a.cell_knobs) ==
         std::tie(b.run_id, b.environment, b.backend, b.architecture, b.collective, b.size_bytes,
                  b.ranks, b.datatype, b.algorithm, b.in_place, b.group_knobs, b.cell_knobs);
}

void add_launch(CellFigure& f, const TableView& rows, std::size_t i) {
  f.launches.push_back({rows.integer(i, "block"), rows.real(i, "median_us").value_or(0),
                        rows.real(i, "collective_us"), rows.real(i, "h2d_us"),
                        rows.real(i, "d2h_us"), rows.real(i, "send_us"), rows.real(i, "compute_us"),
                        rows.real(i, "device_us"), rows.text(i, "regime"),
                        rows.real(i, "resolution_us").value_or(0),
                        rows.real(i, "share_at_work").value_or(1), rows.real(i, "waited_share")});
  const auto note = [&](std::set<std::string>& set, std::string_view column) {
    if (auto text = rows.text(i, column); !text.empty()) set.insert(std::move(text));
  };
  note(f.regimes, "regime");
  note(f.cadences, "cadence");
  note(f.barriers, "barrier");
  note(f.aggregations, "rank_aggregation");
  note(f.algorithms_ran, "algorithm_ran");
  f.batches.insert(rows.integer(i, "batch"));
  f.drifting += rows.integer(i, "not_stationary");
}

bool same_operation(const CellFigure& a, const CellFigure& b) {
  const auto key = [](const CellFigure& f) {
    return std::tie(f.run_id, f.architecture, f.collective, f.ranks, f.datatype, f.algorithm,
                    f.in_place, f.group_knobs, f.cell_knobs, f.size_bytes);
  };
  return key(a) == key(b);
}

/// SQL knows the order of everything but the environments.
void sort_environments(std::vector<CellFigure>& figures) {
  auto begin = figures.begin();
  while (begin != figures.end()) {
    const auto end = std::find_if_not(
        begin, figures.end(), [&](const CellFigure& f) { return same_operation(*begin, f); });
    std::stable_sort(begin, end, [](const CellFigure& a, const CellFigure& b) {
      return environment_order(a.environment) < environment_order(b.environment);
    });
    begin = end;
  }
}

}  // namespace

std::vector<double> CellFigure::medians_us() const {
  std::vector<double> values;
  for (const auto& launch : launches) values.push_back(launch.median_us);
  return values;
}

double CellFigure::median_us() const { return median(medians_us()); }

double CellFigure::resolution_us() const {
  double farthest = 0;
  for (const auto& launch : launches) farthest = std::max(farthest, launch.resolution_us);
  return farthest;
}

std::optional<Interval> CellFigure::interval() const {
  auto interval = launch_interval(medians_us());
  if (interval) {
    // 0.25 may be all from 0.245 to 0.255, however often it is printed.
    interval->low = std::max(0.0, interval->low - resolution_us());
    interval->high += resolution_us();
  }
  return interval;
}

std::optional<double> CellFigure::component_us(
    std::optional<double> LaunchFigure::*component) const {
  std::vector<double> values;
  for (const auto& launch : launches) {
    if (launch.*component) values.push_back(*(launch.*component));
  }
  if (values.empty()) return std::nullopt;
  return median(std::move(values));
}

std::optional<double> CellFigure::waited_share() const {
  std::vector<double> shares;
  for (const auto& launch : launches)
    if (launch.waited_share) shares.push_back(*launch.waited_share);
  if (shares.empty()) return std::nullopt;
  return median(std::move(shares));
}

double CellFigure::algbw_bytes_per_s() const {
  const double time = median_us();
  return time > 0 ? static_cast<double>(size_bytes) / time * 1e6 : 0;
}

std::optional<double> CellFigure::busbw_bytes_per_s() const {
  if (!busbw_factor) return std::nullopt;
  return algbw_bytes_per_s() * *busbw_factor;
}

std::vector<CellFigure> load_figures(const Reader& reader, const std::vector<std::int64_t>& runs) {
  std::vector<CellFigure> figures;
  for (const std::int64_t run : runs) {
    const Table table = reader.query(std::string(embedded::query_launch_medians), {run});
    const TableView rows(table);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CellFigure cell = figure_cell(rows, i);
      cell.busbw_factor = rows.real(i, "busbw_factor");
      if (figures.empty() || !same_cell(figures.back(), cell)) figures.push_back(std::move(cell));
      add_launch(figures.back(), rows, i);
    }
  }
  sort_environments(figures);
  return figures;
}

CellFigure group_figure(const TableView& rows, std::size_t row) {
  CellFigure f;
  f.run_id = rows.text(row, "run_id");
  f.environment = rows.text(row, "environment");
  f.backend = rows.text(row, "backend");
  f.architecture = rows.text(row, "architecture");
  f.ranks = rows.integer(row, "ranks");
  f.group_knobs = rows.text(row, "group_knobs");
  return f;
}

std::string group_key(const CellFigure& f) {
  return fmt::format("{}|{}|{}|{}|{}|{}", f.run_id, f.environment, f.backend, f.architecture,
                     f.ranks, f.group_knobs);
}

CellFigure figure_cell(const TableView& rows, std::size_t row) {
  CellFigure f = group_figure(rows, row);
  f.collective = rows.text(row, "collective");
  f.size_bytes = rows.integer(row, "size_bytes");
  f.datatype = rows.text(row, "datatype");
  f.algorithm = rows.text(row, "algorithm");
  f.in_place = rows.integer(row, "in_place");
  f.cell_knobs = rows.text(row, "cell_knobs");
  return f;
}

std::set<std::string> cadences_of(const std::vector<const CellFigure*>& figures) {
  std::set<std::string> cadences;
  for (const auto* figure : figures)
    cadences.insert(figure->cadences.begin(), figure->cadences.end());
  return cadences;
}

namespace {

/// No verdict comes of it.
void leave_unjudged(Ratio& ratio) {
  ratio.interval.reset();
  ratio.waits.reset();
}

}  // namespace

void refuse_simulated_beside_measured(const std::string& one, const std::string& other) {
  if (is_simulated(one) == is_simulated(other)) return;
  const bool first = is_simulated(one);
  throw Error(
      ErrorKind::input,
      fmt::format("{} was simulated and {} was measured: no ratio of the two is given, as it "
                  "would speak of the simulation's error; `dynamiccl query latency` shows "
                  "the times of either",
                  first ? one : other, first ? other : one));
}

Ratio time_ratio(const CellFigure& numerator, const CellFigure& base) {
  Ratio ratio = time_ratio_anyway(numerator, base);
  // A mean of calls back to back is up to 2.3 times shorter than a call alone: such a ratio speaks
  // of the timing, whatever else the two differ in.
  if (cadences_of({&numerator, &base}).size() > 1) leave_unjudged(ratio);
  return ratio;
}

namespace {

/// What of a launch's time is taken.
enum class Taken { whole, without_waits };

double time_of(const LaunchFigure& launch, Taken taken) {
  return taken == Taken::whole ? launch.median_us : launch.median_us * launch.share_at_work;
}

/// A ratio that is known no better than the digits its two times were printed with.
Ratio with_resolution(Ratio ratio, const CellFigure& numerator, const CellFigure& base) {
  const auto doubt_of = [](const CellFigure& figure) {
    const double time = figure.median_us();
    return time > 0 ? figure.resolution_us() / time : 0;
  };
  const double doubt = doubt_of(numerator) + doubt_of(base);
  if (!ratio.interval || doubt <= 0) return ratio;
  ratio.interval->low *= std::exp(-doubt);
  ratio.interval->high *= std::exp(doubt);
  ratio.reach += doubt;
  // Times that are printed all alike have no spread of their own, so no degrees of freedom either.
  if (!std::isfinite(ratio.degrees) || ratio.degrees < 1) ratio.degrees = 1;
  return ratio;
}

std::vector<double> times_of(const CellFigure& figure, Taken taken) {
  std::vector<double> times;
  for (const auto& launch : figure.launches) times.push_back(time_of(launch, taken));
  return times;
}

Ratio ratio_of(const CellFigure& numerator, Taken of_numerator, const CellFigure& base,
               Taken of_base) {
  if (numerator.run_id == base.run_id) {
    std::map<std::int64_t, double> base_of;
    for (const auto& launch : base.launches) base_of[launch.block] = time_of(launch, of_base);
    std::vector<double> above;
    std::vector<double> below;
    for (const auto& launch : numerator.launches) {
      const auto partner = base_of.find(launch.block);
      if (partner == base_of.end()) continue;
      above.push_back(time_of(launch, of_numerator));
      below.push_back(partner->second);
    }
    if (above.size() >= 3) return with_resolution(ratio_paired(above, below), numerator, base);
  }
  return with_resolution(ratio_unpaired(times_of(numerator, of_numerator), times_of(base, of_base)),
                         numerator, base);
}

bool waited(const CellFigure& figure) {
  return std::ranges::any_of(figure.launches,
                             [](const LaunchFigure& launch) { return launch.share_at_work < 1; });
}

/// Without the launches that mostly waited: what they would have taken is not known.
CellFigure mostly_at_work(const CellFigure& figure) {
  CellFigure left = figure;
  std::erase_if(left.launches,
                [](const LaunchFigure& launch) { return launch.share_at_work < 0.5; });
  return left;
}

std::string waits_text(const CellFigure& numerator, const CellFigure& base) {
  const auto share = [](const CellFigure& figure) {
    const auto known = figure.waited_share();
    return known ? fmt::format("{:.0f} %", 100 * *known) : std::string("an unknown part");
  };
  const auto name = [&](const CellFigure& figure) {
    return numerator.environment != base.environment ? " in " + figure.environment
           : numerator.backend != base.backend       ? " with " + figure.backend
                                                     : std::string();
  };
  return fmt::format("ranks waited for a core {} of the time{}, {}{}", share(base), name(base),
                     share(numerator), name(numerator));
}

}  // namespace

Ratio time_ratio_anyway(const CellFigure& numerator, const CellFigure& base) {
  refuse_simulated_beside_measured(numerator.environment, base.environment);
  Ratio ratio = ratio_of(numerator, Taken::whole, base, Taken::whole);
  if (!ratio.interval || (!waited(numerator) && !waited(base))) return ratio;
  WaitBounds bounds{{}, {}, waits_text(numerator, base)};
  const CellFigure above = mostly_at_work(numerator);
  const CellFigure below = mostly_at_work(base);
  if (!above.launches.empty() && !below.launches.empty()) {
    bounds.least = ratio_of(above, Taken::without_waits, below, Taken::whole);
    bounds.most = ratio_of(above, Taken::whole, below, Taken::without_waits);
  }
  ratio.waits = std::make_shared<const WaitBounds>(std::move(bounds));
  return ratio;
}

std::string waits_note(const Ratio& ratio, Verdict verdict, const EquivalenceBand& band) {
  if (!ratio.waits) return "";
  if (verdict == Verdict::not_judged) return ratio.waits->cause;
  if (verdict != Verdict::slower && verdict != Verdict::faster) return "";
  const auto factor = factor_at_least(ratio, band);
  if (!factor) return "";
  return fmt::format("{} {:.3g}: {}", *factor > 1 ? "at least" : "at most", *factor,
                     ratio.waits->cause);
}

std::string medians_note(const CellFigure& numerator, const CellFigure& base, const Ratio& ratio,
                         Verdict verdict, const EquivalenceBand& band) {
  const double of_medians = numerator.median_us() / base.median_us();
  const bool outside = std::max(of_medians, 1 / of_medians) > 1 + band.relative ||
                       verdict == Verdict::faster || verdict == Verdict::slower;
  if (!outside || (of_medians > 1) == (ratio.value > 1)) return "";
  return fmt::format("the medians alone have ratio {:.3f}", of_medians);
}

Ratio lead_ratio(const std::vector<const CellFigure*>& fastest_first) {
  if (fastest_first.size() < 2) return {};
  Ratio lead = time_ratio(*fastest_first[1], *fastest_first[0]);
  if (cadences_of(fastest_first).size() > 1) leave_unjudged(lead);
  return lead;
}

std::vector<Verdict> judge_by_run(const std::vector<std::string>& runs,
                                  const std::vector<Ratio>& ratios) {
  std::map<std::string, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < ratios.size(); ++i) rows[runs.at(i)].push_back(i);
  std::vector<Verdict> verdicts(ratios.size(), Verdict::unclear);
  for (const auto& [run, places] : rows) {
    std::vector<Ratio> own;
    for (const auto place : places) own.push_back(ratios[place]);
    const auto judged = judge_table(own, EquivalenceBand{});
    for (std::size_t i = 0; i < places.size(); ++i) verdicts[places[i]] = judged[i];
  }
  return verdicts;
}

void add_bounds(std::vector<Value>& row, const std::optional<Interval>& interval) {
  row.push_back(or_null(interval ? std::optional(interval->low) : std::nullopt));
  row.push_back(or_null(interval ? std::optional(interval->high) : std::nullopt));
}

const std::vector<std::string>& axis_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    list.reserve(kAxes.size());
    for (const auto& axis : kAxes) list.emplace_back(axis.name);
    return list;
  }();
  return names;
}

std::string axis_value(const CellFigure& figure, const std::string& axis) {
  for (const auto& known : kAxes) {
    if (known.name == axis) return known.value(figure);
  }
  throw Error(ErrorKind::input,
              fmt::format("unknown axis \"{}\"; {}", axis, suggestion(axis, axis_names())));
}

std::string key_without(const CellFigure& figure, std::string_view axis) {
  std::string key = figure.run_id;
  for (const auto& known : kAxes) {
    if (known.name != axis) key += '\n' + known.value(figure);
  }
  // Other work is no alternative: a maximum is no faster sum.
  if (axis == "cell_knobs") key += '\n' + work_part_of(figure.cell_knobs);
  return key;
}

std::vector<CellFigure> with_stated_memory(std::vector<CellFigure> figures) {
  const auto on_gpu = [](const CellFigure& f) {
    const auto backend = find_named<Backend>(f.backend);
    return backend && backend_facts(*backend).on_gpu;
  };
  const auto knobs_of = [](const CellFigure& f) {
    auto knobs = json_or_discarded(f.cell_knobs);
    return knobs.is_object() ? knobs : nlohmann::json::object();
  };
  std::set<std::string> staged_runs;
  for (const auto& f : figures)
    if (!on_gpu(f) && f.cell_knobs.find("memory") != std::string::npos &&
        knobs_of(f).value("memory", nlohmann::json()) == "device")
      staged_runs.insert(f.run_id);
  for (auto& f : figures) {
    if (!on_gpu(f) || !staged_runs.contains(f.run_id)) continue;
    auto knobs = knobs_of(f);
    knobs["memory"] = "device";
    f.cell_knobs = knobs.dump();
  }
  return figures;
}

BareMetal::BareMetal(const std::vector<CellFigure>& figures) {
  for (const auto& figure : figures) {
    if (figure.environment != name_of(EnvironmentKind::bare_metal)) continue;
    by_key_.emplace(key_without(figure, "environment"), &figure);
  }
}

const CellFigure* BareMetal::of(const CellFigure& figure) const {
  const auto found = by_key_.find(key_without(figure, "environment"));
  return found == by_key_.end() ? nullptr : found->second;
}

std::pair<std::size_t, std::string> environment_order(const std::string& environment) {
  const auto& kinds = NameTable<EnvironmentKind>::entries;
  std::size_t place = 0;
  while (place < kinds.size() && environment.rfind(kinds[place].name, 0) != 0) ++place;
  return {place, environment};
}

}  // namespace dynamiccl
