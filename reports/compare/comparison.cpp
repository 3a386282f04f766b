#include "reports/compare/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "db/usual_db.hpp"

namespace dynamiccl {
namespace {

/// Axes of a cell but those dropped, without the run: equal for cells that are to be compared.
std::string key_of(const CellFigure& figure, const std::set<std::string>& dropped) {
  std::string key;
  for (const auto& axis : axis_names()) {
    if (!dropped.contains(axis)) key += axis + "=" + axis_value(figure, axis) + "\n";
  }
  return key;
}

std::set<std::string> values_of(const std::vector<CellFigure>& figures, const std::string& axis) {
  std::set<std::string> values;
  for (const auto& figure : figures) values.insert(axis_value(figure, axis));
  return values;
}

/// Axes in which every cell of A differs from every cell of B. They are set aside for the pairing.
/// @throws Error(input) where a side has several values of such an axis: which of them would be the
/// partner of which nobody knows
std::vector<Difference> unlike_axes(const ComparisonSide& a, const ComparisonSide& b,
                                    const std::string& compared) {
  std::vector<Difference> unlike;
  for (const auto& axis : axis_names()) {
    if (axis == compared) continue;
    const auto of_a = values_of(a.figures, axis);
    const auto of_b = values_of(b.figures, axis);
    const bool common = std::any_of(of_a.begin(), of_a.end(),
                                    [&](const auto& value) { return of_b.contains(value); });
    if (common || of_a.empty() || of_b.empty()) continue;
    const std::string all_a = join({of_a.begin(), of_a.end()}, ", ");
    const std::string all_b = join({of_b.begin(), of_b.end()}, ", ");
    if (of_a.size() > 1 || of_b.size() > 1)
      throw Error(ErrorKind::input,
                  fmt::format("compare: {} and {} have no {} in common (A {}; B {}), and a side "
                              "with several of them has no one partner for each cell. Compare runs "
                              "that share a {} or that have one each",
                              a.selection.label, b.selection.label, axis, all_a, all_b, axis));
    unlike.push_back({axis, all_a, all_b});
  }
  return unlike;
}

std::string listed(const std::vector<Difference>& differences) {
  std::string text;
  for (const auto& d : differences) text += fmt::format("\n  {}: A {}, B {}", d.what, d.a, d.b);
  return text;
}

/// How this cell was timed on one side; empty for what is not recorded.
Facts cell_method(const CellFigure& f) {
  const auto joined = [](const std::set<std::string>& set) {
    return join({set.begin(), set.end()}, ", ");
  };
  return {{"cadence", joined(f.cadences)},
          {"barrier", joined(f.barriers)},
          {"rank_aggregation", joined(f.aggregations)}};
}

std::string no_interval_note(const ComparedCell& cell) {
  return fmt::format("no interval: {} launch{} in A, {} in B; three each are the least",
                     cell.a.launches.size(), cell.a.launches.size() == 1 ? "" : "es",
                     cell.b.launches.size());
}

void add_note(std::string& note, const std::string& more) {
  if (!note.empty()) note += "; ";
  note += more;
}

/// What makes a cell no pair: timed in two ways, or on other cores.
std::vector<Difference> unlike_in(const ComparedCell& cell) {
  auto unlike = differences(cell_method(cell.a), cell_method(cell.b));
  if (cell.placement) unlike.push_back(*cell.placement);
  return unlike;
}

/// Such a cell has a ratio but no verdict.
std::string unlike_note(const ComparedCell& cell) {
  std::string note;
  for (const auto& d : unlike_in(cell))
    add_note(note, fmt::format("{} {} in A, {} in B", d.what, d.a, d.b));
  return note;
}

/// Numbers of CPUs are compared where they mean the same on both sides; how the ranks share cores
/// is compared always. Nothing is said where a side does not know.
std::optional<Difference> unlike_placement(const ComparedCell& cell, const Comparison& sides) {
  const auto of_a = sides.a.placements.find(group_key(cell.a));
  const auto of_b = sides.b.placements.find(group_key(cell.b));
  if (of_a == sides.a.placements.end() || of_b == sides.b.placements.end()) return std::nullopt;
  const Placement& a = of_a->second;
  const Placement& b = of_b->second;
  const bool alike = a.layouts == b.layouts ? a.cpus == b.cpus : a.shapes == b.shapes;
  if (alike) return std::nullopt;
  const auto told = [&](const Placement& placement) {
    const auto& texts = a.layouts == b.layouts ? placement.cpus : placement.shapes;
    return join({texts.begin(), texts.end()}, " and ");
  };
  return Difference{std::string(kPlacement), told(a), told(b)};
}

void judge_cells(Comparison& result) {
  std::vector<Ratio> judged;
  std::vector<ComparedCell*> places;
  for (auto& cell : result.cells) {
    cell.time_ratio = time_ratio_anyway(cell.b, cell.a);
    cell.note = unlike_note(cell);
    cell.unlike = !cell.note.empty() && !result.options.anyway;
    if (cell.unlike) continue;
    for (const auto& [side, failures] : {std::pair("A", &cell.failures_a), {"B", &cell.failures_b}})
      if (!failures->empty()) add_note(cell.note, fmt::format("{} {}", side, *failures));
    if (!cell.time_ratio.interval) {
      add_note(cell.note, no_interval_note(cell));
      continue;
    }
    judged.push_back(cell.time_ratio);
    places.push_back(&cell);
  }
  result.judged = static_cast<int>(judged.size());
  const auto& band = result.options.band;
  const auto verdicts = judge_table(judged, band, result.options.false_discovery_rate);
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto& cell = *places[i];
    const Verdict alone = judge(cell.time_ratio, band);
    cell.verdict = result.options.correct_for_table ? verdicts[i] : alone;
    if (const auto of_waits = waits_note(cell.time_ratio, cell.verdict, band); !of_waits.empty())
      add_note(cell.note, of_waits);
    const auto of_medians = medians_note(cell.b, cell.a, cell.time_ratio, cell.verdict, band);
    if (!of_medians.empty()) add_note(cell.note, of_medians);
    if (cell.fails_in_b() && cell.verdict != Verdict::slower) {
      cell.verdict = Verdict::unclear;
      continue;
    }
    if (cell.verdict != Verdict::unclear) continue;
    if (alone != Verdict::unclear) {
      add_note(cell.note,
               fmt::format("{} alone, not among {} cells", name_of(alone), judged.size()));
      continue;
    }
    const auto launches =
        static_cast<int>(std::min(cell.a.launches.size(), cell.b.launches.size()));
    cell.launches_needed = launches_needed(cell.time_ratio, band, launches);
  }
}

/// Cells of a side by what they have in common with their partner.
/// @throws Error(input) where two cells of the side would have the same partner
std::map<std::string, const CellFigure*> by_key(const ComparisonSide& side,
                                                const std::set<std::string>& dropped) {
  std::map<std::string, const CellFigure*> cells;
  for (const auto& figure : side.figures) {
    if (cells.emplace(key_of(figure, dropped), &figure).second) continue;
    throw Error(
        ErrorKind::input,
        fmt::format("compare: {} has two cells {} {} {} of {} B that differ in {} alone, "
                    "which is what is compared; choose one of them with --where",
                    side.selection.label, figure.environment, figure.backend, figure.collective,
                    figure.size_bytes, join({dropped.begin(), dropped.end()}, ", ")));
  }
  return cells;
}

/// Why launches of a cell do not count, where some do not.
std::map<std::string, std::string> failures_by_key(const ComparisonSide& side,
                                                   const std::set<std::string>& dropped) {
  std::map<std::string, std::string> reasons;
  for (const auto& cell : side.with_failures) reasons[key_of(cell.figure, dropped)] = cell.reason;
  return reasons;
}

std::string text_at(const std::map<std::string, std::string>& texts, const std::string& key) {
  const auto found = texts.find(key);
  return found == texts.end() ? "" : found->second;
}

void pair_cells(Comparison& result, const std::set<std::string>& dropped) {
  by_key(result.a, dropped);
  const auto partners = by_key(result.b, dropped);
  const auto failures_a = failures_by_key(result.a, dropped);
  const auto failures_b = failures_by_key(result.b, dropped);
  std::set<std::string> paired;
  const auto lonely = [&](const CellFigure& figure, const std::string& key,
                          const ComparisonSide& other, const char* name) {
    const auto planned = std::find_if(
        other.without_result.begin(), other.without_result.end(),
        [&](const CellWithReason& cell) { return key_of(cell.figure, dropped) == key; });
    if (planned == other.without_result.end()) {
      result.unplanned.push_back({figure, name, "not in its plan"});
    } else {
      result.missing.push_back({figure, name, planned->reason});
    }
  };
  for (const auto& figure : result.a.figures) {
    const auto key = key_of(figure, dropped);
    const auto partner = partners.find(key);
    if (partner == partners.end()) {
      lonely(figure, key, result.b, "B");
      continue;
    }
    paired.insert(key);
    ComparedCell cell;
    cell.a = figure;
    cell.b = *partner->second;
    cell.placement = unlike_placement(cell, result);
    cell.failures_a = text_at(failures_a, key);
    cell.failures_b = text_at(failures_b, key);
    result.cells.push_back(std::move(cell));
  }
  for (const auto& [key, figure] : partners) {
    if (!paired.contains(key)) lonely(*figure, key, result.a, "A");
  }
}

void require_figures(const ComparisonSide& side, const char* name) {
  if (!side.figures.empty()) return;
  throw Error(
      ErrorKind::input,
      fmt::format("compare: {} ({}) has no measured cell{}; `dynamiccl query coverage --run "
                  "{}{}` shows what became of its cells",
                  name, side.selection.label,
                  side.selection.axis.empty()
                      ? ""
                      : fmt::format(" with {} {}", side.selection.axis, side.selection.value),
                  side.run_id, db_words(side.selection.db)));
}

[[noreturn]] void refuse_unlike(const Comparison& sides, const std::vector<Difference>& unlike) {
  const bool grown = sides.a.machines.nodes != sides.b.machines.nodes &&
                     std::any_of(unlike.begin(), unlike.end(),
                                 [](const Difference& d) { return d.what == "ranks"; });
  const std::string more =
      grown ? fmt::format(
                  "A ran on {}, B on {}: `dynamiccl query node_scaling{}` holds times over "
                  "nodes and ranks against each other. ",
                  machines_text(sides.a.machines), machines_text(sides.b.machines),
                  db_words(sides.b.selection.db))
            : "";
  throw Error(
      ErrorKind::input,
      fmt::format("compare: A and B were not measured alike:{}\nA ratio of the two would "
                  "not speak of what you changed. {}Measure one of them again, choose cells "
                  "with --where, or compare anyway with --anyway",
                  listed(unlike), more));
}

}  // namespace

std::vector<Difference> differences(const Facts& a, const Facts& b) {
  std::vector<Difference> result;
  std::set<std::string> names;
  for (const auto& [name, value] : a) names.insert(name);
  for (const auto& [name, value] : b) names.insert(name);
  const auto shown = [](const Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() || found->second.empty() ? std::string("-") : found->second;
  };
  for (const auto& name : names) {
    auto of_a = shown(a, name);
    auto of_b = shown(b, name);
    if (of_a != of_b) result.push_back({name, std::move(of_a), std::move(of_b)});
  }
  return result;
}

int Comparison::count(Verdict verdict) const {
  return static_cast<int>(std::count_if(cells.begin(), cells.end(),
                                        [&](const auto& cell) { return cell.verdict == verdict; }));
}

int Comparison::unplanned_in(std::string_view side) const {
  return static_cast<int>(std::count_if(unplanned.begin(), unplanned.end(),
                                        [&](const auto& cell) { return cell.missing_in == side; }));
}

Verdict Comparison::overall() const {
  if (count(Verdict::slower) > 0) return Verdict::slower;
  const int open = count(Verdict::unclear) + count(Verdict::not_judged);
  if (open > 0 || !missing.empty()) return Verdict::unclear;
  return count(Verdict::faster) > 0 ? Verdict::faster : Verdict::same;
}

std::vector<MissingGroup> missing_groups(const std::vector<CellWithoutPartner>& missing) {
  struct Cells {
    std::set<std::string> collectives;
    std::set<std::int64_t> sizes;
    int count = 0;
  };
  std::vector<MissingGroup> groups;
  std::map<std::string, std::size_t> places;
  std::vector<Cells> cells;
  for (const auto& cell : missing) {
    const CellFigure& f = cell.figure;
    const std::string key = group_key(f) + "\n" + cell.missing_in + "\n" + cell.reason;
    const auto [place, is_new] = places.try_emplace(key, groups.size());
    if (is_new) {
      groups.push_back({"", f, cell.missing_in, cell.reason});
      cells.emplace_back();
    }
    Cells& of_group = cells[place->second];
    of_group.collectives.insert(f.collective);
    of_group.sizes.insert(f.size_bytes);
    ++of_group.count;
  }
  const auto size = [](std::int64_t bytes) {
    return format_bytes(Bytes(static_cast<std::uint64_t>(bytes)));
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& [collectives, sizes, count] = cells[i];
    const CellFigure& f = groups[i].first;
    std::string knobs = f.group_knobs == "{}" ? "" : f.group_knobs;
    if (!knobs.empty()) knobs = " " + knobs;
    groups[i].what =
        fmt::format("{} {} {}, {} ranks{}: {} cell{} ({}; {})", f.environment, f.backend,
                    f.architecture, f.ranks, knobs, count, count == 1 ? "" : "s",
                    join({collectives.begin(), collectives.end()}, ", "),
                    sizes.size() == 1 ? size(*sizes.begin())
                                      : size(*sizes.begin()) + " to " + size(*sizes.rbegin()));
  }
  return groups;
}

Comparison compare_sides(ComparisonSide a, ComparisonSide b, const ComparisonOptions& options) {
  if (a.selection.axis != b.selection.axis) {
    throw Error(ErrorKind::input,
                fmt::format("compare: {} and {} are not of one kind; give two runs, or two values "
                            "of one axis",
                            a.selection.label, b.selection.label));
  }
  require_figures(a, "A");
  require_figures(b, "B");
  // One of a run's environments stands for all: an experiment has no two kinds.
  refuse_simulated_beside_measured(a.figures.front().environment, b.figures.front().environment);
  const std::string axis = a.selection.axis;
  // A run is itself in every copy of its database.
  if (a.run_id == b.run_id && a.selection.value == b.selection.value) {
    throw Error(
        ErrorKind::input,
        fmt::format("compare: {} and {} are the same measurements: run {}; name another "
                    "run (`dynamiccl list{}`), or two environments or values of an axis of "
                    "this one, as in backend=gloo",
                    a.selection.label, b.selection.label, a.run_id, db_words(a.selection.db)));
  }
  Comparison result{std::move(a), std::move(b), options, {}, {}, {}, 0, {}, {}};
  std::set<std::string> dropped;
  if (!axis.empty()) dropped.insert(axis);
  result.method = differences(result.a.method, result.b.method);
  result.provenance = differences(result.a.provenance, result.b.provenance);
  std::stable_partition(
      result.provenance.begin(), result.provenance.end(),
      [](const Difference& d) { return d.what == kNodes || d.what.starts_with(kPlacement); });
  for (auto& difference : unlike_axes(result.a, result.b, axis)) {
    dropped.insert(difference.what);
    // Two runs in two environments are a question worth asking; other axes are other questions.
    auto& list = difference.what == "environment" ? result.provenance : result.method;
    list.insert(list.begin(), std::move(difference));
  }
  if (!result.method.empty() && !options.anyway) refuse_unlike(result, result.method);
  pair_cells(result, dropped);
  if (result.cells.empty()) {
    throw Error(ErrorKind::input,
                fmt::format("compare: {} and {} have no cell in common; `dynamiccl query latency "
                            "--run ID{}` shows the cells of a run",
                            result.a.selection.label, result.b.selection.label,
                            db_words(result.a.selection.db)));
  }
  judge_cells(result);
  const bool none_alike =
      !options.anyway && std::all_of(result.cells.begin(), result.cells.end(),
                                     [](const auto& c) { return !unlike_in(c).empty(); });
  if (none_alike) refuse_unlike(result, unlike_in(result.cells.front()));
  result.a.figures.clear();
  result.b.figures.clear();
  return result;
}

}  // namespace dynamiccl
