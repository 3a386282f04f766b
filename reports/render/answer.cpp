#include "reports/render/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "db/usual_db.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/regime_causes.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/synchronisation_warnings.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/target_times.hpp"
#include "reports/model/training_report.hpp"
#include "reports/model/trust.hpp"
#include "reports/model/waits.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kLeastWidth = 60;
constexpr std::size_t kLines = 30;  // where the machine has little to say
constexpr std::size_t kLeastRows = 3;
constexpr std::size_t kMostRows = 12;
constexpr std::size_t kMostCauses = 2;

/// The text in lines of `width` columns, those after the first indented by two; whole, as what is
/// to be done stands at the end of many.
std::string wrapped(const std::string& text, std::size_t width) {
  return join(broken_lines(one_line(text), width - 2), "\n  ") + "\n";
}

/// "2.00 [1.90, 2.10]".
std::string ratio_text(const Ratio& ratio) {
  const std::string value = format_number(ratio.value);
  if (!ratio.interval) return value;
  return fmt::format("{} [{}, {}]", value, format_number(ratio.interval->low),
                     format_number(ratio.interval->high));
}

/// One cell next to the same on bare metal.
struct CellCost {
  const CellFigure* figure = nullptr;
  Ratio ratio;
  Verdict verdict = Verdict::unclear;
};

/// The costs of a run, judged in one pass as query overhead does.
std::vector<CellCost> costs_of(const std::vector<CellFigure>& figures) {
  const BareMetal bare_metal(figures);
  std::vector<CellCost> costs;
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const auto& figure : figures) {
    const CellFigure* base = bare_metal.of(figure);
    if (base == nullptr || base == &figure) continue;
    costs.push_back({&figure, time_ratio(figure, *base)});
    runs.push_back(figure.run_id);
    ratios.push_back(costs.back().ratio);
  }
  const auto verdicts = judge_by_run(runs, ratios);
  for (std::size_t i = 0; i < costs.size(); ++i) costs[i].verdict = verdicts[i];
  return costs;
}

/// What was measured on a busy machine, and what is surely so all the same.
std::string busy_text(const std::vector<CellFigure>& figures, const std::vector<CellCost>& costs,
                      std::size_t width) {
  std::vector<Ratio> ratios;
  std::vector<Verdict> verdicts;
  std::map<std::pair<std::size_t, std::string>, std::vector<double>> least;
  for (const auto& cost : costs) {
    ratios.push_back(cost.ratio);
    verdicts.push_back(cost.verdict);
    if (cost.verdict != Verdict::slower && cost.verdict != Verdict::faster) continue;
    if (const auto factor = factor_at_least(cost.ratio, EquivalenceBand{}))
      least[environment_order(cost.figure->environment)].push_back(*factor);
  }
  const std::string busy = busy_machine(figures, ratios, verdicts);
  if (busy.empty()) return "";
  std::vector<std::string> sure;
  for (const auto& [place, factors] : least) {
    const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
    sure.push_back(fmt::format("{} by at least {}{}", place.second, format_number(*low),
                               factors.size() == 1
                                   ? ""
                                   : fmt::format(" to {} x in {}", format_number(*high),
                                                 counted(factors.size(), "cell"))));
  }
  return wrapped(busy, width) +
         (sure.empty() ? "" : wrapped("surely all the same: " + join(sure, "; "), width));
}

using Place = std::tuple<std::pair<std::size_t, std::string>, std::string>;

/// Environment and library.
Place place_of(const CellFigure& f) { return {environment_order(f.environment), f.backend}; }

/// By place: "cma 99 %, tcp 1 %", the most first.
std::map<Place, std::string> moved_by(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.environment, v.backend, t.transport, sum(t.payload_bytes) AS bytes FROM v_launch v "
      "JOIN transport t ON t.launch_id = v.launch_row WHERE v.run_row = ?1 "
      "AND v.launch_status = 'ok' GROUP BY 1, 2, 3 ORDER BY 1, 2, 4 DESC",
      {run});
  const TableView rows(table);
  const auto place = [&](std::size_t i) {
    return Place{environment_order(rows.text(i, "environment")), rows.text(i, "backend")};
  };
  std::map<Place, double> sums;
  for (std::size_t i = 0; i < rows.size(); ++i) sums[place(i)] += rows.real(i, "bytes").value_or(0);
  std::map<Place, std::string> told;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double sum = sums[place(i)];
    const double share = sum > 0 ? 100 * rows.real(i, "bytes").value_or(0) / sum : 0;
    if (share < 0.5 && sum > 0) continue;
    auto& text = told[place(i)];
    text += (text.empty() ? "" : ", ") + rows.text(i, "transport") +
            (sum > 0 ? fmt::format(" {:.0f} %", share) : "");
  }
  return told;
}

/// What the cells of one place and one detected regime cost.
struct PlaceCosts {
  std::size_t cells = 0;
  std::vector<double> ratios;
  std::size_t slower = 0;
  std::size_t faster = 0;
  bool judged = false;  ///< one launch has no interval
};

constexpr const char* kCostColumns = R"(
environment
backend | text | the library
regime
cells | integer | cells with a time
x bare-metal | real | median over the cells
least | real, optional | of a cell
most | real, optional | of a cell
surely slower | text, optional | cells
surely faster | text, optional | cells
data moved by | text, optional | transports
)";

/// Rows of places and regimes: a median over libraries would hide that one gains what another
/// loses.
/// @param most rows
std::string costs_text(const std::vector<CellFigure>& figures, const std::vector<CellCost>& costs,
                       const std::map<Place, std::string>& moved, std::size_t most,
                       std::size_t width) {
  std::map<std::pair<Place, std::string>, PlaceCosts> places;
  std::map<Place, std::string> names;
  const auto of = [&](const CellFigure& f) -> PlaceCosts& {
    return places[{place_of(f), joined_names(f.regimes)}];
  };
  for (const auto& figure : figures) {
    ++of(figure).cells;
    names[place_of(figure)] = figure.environment;
  }
  for (const auto& cost : costs) {
    auto& place = of(*cost.figure);
    place.ratios.push_back(cost.ratio.value);
    place.judged = place.judged || cost.ratio.interval.has_value();
    place.slower += cost.verdict == Verdict::slower ? 1 : 0;
    place.faster += cost.verdict == Verdict::faster ? 1 : 0;
  }
  // Regimes are printed where a place has several: elsewhere they say what its name does.
  const bool regimes = places.size() > names.size();
  Columns columns = parse_columns(kCostColumns, "answer");
  Table table;
  for (const auto& column : columns)
    if (column.name != "regime" || regimes) table.columns.push_back(column.name);
  for (const auto& [key, place] : places) {
    if (table.rows.size() == most) break;
    const auto& [where, regime] = key;
    std::vector<Value> row{names[where], std::get<1>(where)};
    if (regimes) row.push_back(or_null(regime));
    row.emplace_back(static_cast<std::int64_t>(place.cells));
    if (place.ratios.empty()) {
      row.resize(row.size() + 5);
    } else {
      const auto [low, high] = std::minmax_element(place.ratios.begin(), place.ratios.end());
      append_values(row, {median(place.ratios), *low, *high});
      for (const std::size_t sure : {place.slower, place.faster})
        row.emplace_back(place.judged ? fmt::format("{} of {}", sure, place.ratios.size())
                                      : std::string("not judged"));
    }
    const auto found = moved.find(where);
    row.push_back(or_null(found == moved.end() ? "" : found->second));
    table.rows.push_back(std::move(row));
  }
  std::string out = "\n" + render_table(table, OutputFormat::text, columns, width);
  if (places.size() > most)
    out += fmt::format("and {} more: query overhead\n", places.size() - most);
  return out;
}

std::string cell_text(const CellCost& cost) {
  const CellFigure& f = *cost.figure;
  return fmt::format("{} x bare metal, {}: {} {} {} {} {}", ratio_text(cost.ratio),
                     name_of(cost.verdict), f.environment, f.backend, f.architecture, f.collective,
                     f.collective == "training"
                         ? f.algorithm
                         : format_bytes(Bytes(static_cast<std::uint64_t>(f.size_bytes))));
}

/// The cells that cost and gain most, of those of which that is sure.
std::string extremes_text(const std::vector<CellCost>& costs, std::size_t width) {
  std::string out;
  for (const auto sure : {Verdict::slower, Verdict::faster}) {
    const CellCost* found = nullptr;
    for (const auto& cost : costs)
      if (cost.verdict == sure && (found == nullptr || (cost.ratio.value > found->ratio.value) ==
                                                           (sure == Verdict::slower)))
        found = &cost;
    if (found != nullptr)
      out += wrapped((sure == Verdict::slower ? "worst: " : "best: ") + cell_text(*found), width);
  }
  return out;
}

constexpr const char* kTimeColumns = R"(
collective
size_bytes
environment | text, quiet | the environment's profile
architecture | text, quiet | ring or ps
ranks datatype algorithm in_place group_knobs cell_knobs
backend | text | the library
median_us
busbw_bytes_per_s | bytes_per_s, real, optional | bus bandwidth, as nccl-tests has it
x fastest | real, interval, optional | time over that of the fastest library
verdict | text, optional | of that
)";

/// One row of a library's time of an operation, with its ratio to the fastest library's.
struct TimeRow {
  const CellFigure* figure;
  std::optional<Ratio> ratio{};
};

/// The libraries of one operation, the fastest first.
std::vector<TimeRow> time_rows(std::vector<const CellFigure*> libraries) {
  std::ranges::sort(libraries, {}, [](const CellFigure* f) { return f->median_us(); });
  std::vector<TimeRow> rows;
  for (const auto* figure : libraries) {
    rows.push_back({figure});
    if (figure != libraries.front()) rows.back().ratio = time_ratio(*figure, *libraries.front());
  }
  return rows;
}

/// Operations as rows of libraries: of each collective the largest size, then the smallest, then
/// the others as far as there is room.
std::vector<std::vector<TimeRow>> told_operations(const std::vector<CellFigure>& figures,
                                                  std::size_t most, std::size_t& left_out) {
  std::map<std::string, std::vector<const CellFigure*>> operations;
  std::vector<std::string> order;
  for (const auto& figure : figures) {
    if (figure.collective == "training") continue;
    auto& of = operations[key_without(figure, "backend")];
    if (of.empty()) order.push_back(key_without(figure, "backend"));
    of.push_back(&figure);
  }
  std::map<std::string, std::pair<std::string, std::string>> ends;  // largest, smallest
  const auto size = [&](const std::string& key) { return operations.at(key).front()->size_bytes; };
  for (const auto& key : order) {
    const CellFigure& f = *operations.at(key).front();
    auto& [largest, smallest] = ends[f.environment + f.architecture + f.collective];
    if (largest.empty() || size(key) > size(largest)) largest = key;
    if (smallest.empty() || size(key) < size(smallest)) smallest = key;
  }
  std::vector<std::string> wanted;
  for (const auto& [what, both] : ends) wanted.push_back(both.first);
  for (const auto& [what, both] : ends) wanted.push_back(both.second);
  wanted.insert(wanted.end(), order.begin(), order.end());
  std::set<std::string> told;
  std::size_t rows = 0;
  for (const auto& key : wanted)
    if (!told.contains(key) && (told.empty() || rows + operations.at(key).size() <= most)) {
      told.insert(key);
      rows += operations.at(key).size();
    }
  left_out = order.size() - told.size();
  std::vector<std::vector<TimeRow>> chosen;
  for (const auto& key : order)
    if (told.contains(key)) chosen.push_back(time_rows(operations.at(key)));
  return chosen;
}

/// Where nothing is to be compared with bare metal: what calls take, and which library is fastest.
std::string times_text(const std::vector<CellFigure>& figures, std::size_t most,
                       std::size_t width) {
  std::size_t left_out = 0;
  std::vector<TimeRow> rows;
  for (auto& operation : told_operations(figures, most, left_out))
    rows.insert(rows.end(), operation.begin(), operation.end());
  if (rows.empty()) return "";
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const auto& row : rows)
    if (row.ratio) {
      runs.push_back(row.figure->run_id);
      ratios.push_back(*row.ratio);
    }
  const auto verdicts = judge_by_run(runs, ratios);
  const Columns columns = parse_columns(kTimeColumns, "answer");
  Table table;
  for (const auto& column : columns) table.columns.push_back(column.name);
  std::size_t judged = 0;
  for (const auto& [figure, ratio] : rows) {
    const CellFigure& f = *figure;
    std::vector<Value> values{f.collective,  f.size_bytes, f.environment, f.architecture,
                              f.ranks,       f.datatype,   f.algorithm,   f.in_place,
                              f.group_knobs, f.cell_knobs, f.backend,     f.median_us()};
    add_bounds(values, f.interval());
    values.push_back(or_null(f.busbw_bytes_per_s()));
    values.push_back(or_null(ratio ? std::optional(ratio->value) : std::nullopt));
    add_bounds(values, ratio ? ratio->interval : std::nullopt);
    values.push_back(or_null(ratio ? std::string(name_of(verdicts[judged++])) : std::string()));
    table.rows.push_back(std::move(values));
  }
  std::string out = "\n" + render_table(table, OutputFormat::text, columns, width);
  if (left_out > 0)
    out += fmt::format("and {} more: query latency\n", counted(left_out, "operation"));
  return out;
}

/// A fix's command for the environment that it is to mend.
std::string fix_in(std::string fix, const std::string& environment) {
  constexpr std::string_view kPlace = "ENVIRONMENT";
  if (const auto at = fix.find(kPlace); at != std::string::npos)
    fix.replace(at, kPlace.size(), environment);
  return fix;
}

/// Each on a line of its own, so that no evidence cuts it. Named are the libraries that it is for
/// where it is not for all.
std::string fixes_text(const FixesOf& fixes, const std::string& environment) {
  std::string text;
  for (const auto& [fix, backends] : fixes) {
    if (fix.empty()) continue;
    const auto whose =
        fixes.size() < 2 ? "" : " for " + join({backends.begin(), backends.end()}, ", ");
    text += fmt::format("  fix{}: {}\n", whose, fix_in(fix, environment));
  }
  return text;
}

/// Why, by environment, with what mends it.
std::string causes_text(const Reader& reader, const std::string& run_uuid, std::int64_t run,
                        std::size_t width) {
  std::string out;
  std::size_t told = 0;
  for (const auto& [environment, text, fixes] : environment_causes(reader, run_uuid, run)) {
    const auto mends = fixes_text(fixes, environment);
    if (mends.empty()) continue;
    if (told++ < kMostCauses)
      out += wrapped(fmt::format("why {}: {}", environment, text), width) + mends;
  }
  if (told > kMostCauses)
    out += fmt::format("  and {} more: dynamiccl doctor\n", told - kMostCauses);
  return out;
}

/// The fastest method of each workload, and what it is over PyTorch's DDP.
std::vector<std::string> training_text(const Reader& reader, std::int64_t run,
                                       const std::vector<CellFigure>& figures) {
  std::vector<std::string> lines;
  for (const auto& one : fastest_trainings(reader, run, figures)) {
    const std::string workload =
        fmt::format("{} {} {} batch {} on {}", one.environment, one.backend, one.model, one.batch,
                    counted(one.workers, "worker"));
    const char* lossy =
        one.of_epochs ? "lossy: query time_to_target" : "lossy, without epochs: query training";
    std::string line = one.method.empty()
                           ? fmt::format("training {}: {}", workload, lossy)
                           : fmt::format("training {}: {} at {} a step", workload, one.method,
                                         format_micros(Micros(one.step_us)));
    if (one.over_ddp) line += fmt::format(", {} x the best ddp", format_number(*one.over_ddp));
    lines.push_back(line);
  }
  return lines;
}

/// The soonest configuration of each task with a target accuracy, against the fastest plain SGD.
std::vector<std::string> target_text(const Reader& reader, std::int64_t run) {
  const auto cells = target_cells(reader, run);
  std::map<std::string, std::vector<const TargetCell*>> tasks;
  for (const auto& one : cells)
    tasks[fmt::format("{} {} {} batch {} on {} to accuracy {:g}", one.figure.environment,
                      one.figure.backend, one.cell.model, one.cell.batch,
                      counted(one.cell.workers, "worker"), one.target) +
          "\n" + one.task]
        .push_back(&one);
  std::vector<std::string> lines;
  for (const auto& [task, ways] : tasks) {
    const auto soonest = [&](bool plain) {
      const TargetCell* best = nullptr;
      for (const auto* one : ways)
        if ((one->plain || !plain) && !one->figure.launches.empty() && one->always_reached() &&
            (best == nullptr || one->figure.median_us() < best->figure.median_us()))
          best = one;
      return best;
    };
    const auto* best = soonest(false);
    const auto* plain = soonest(true);
    std::string line = "training " + task.substr(0, task.find('\n')) + ": ";
    if (best == nullptr) {
      line += "no configuration reached it in all launches";
    } else {
      line += fmt::format("{} in {}", configuration_words(best->figure),
                          format_micros(Micros(best->figure.median_us())));
      if (plain != nullptr && plain != best) {
        const Ratio ratio = time_ratio_anyway(best->figure, plain->figure);
        line += fmt::format(", {} x plain {}'s {}", ratio_text(ratio), plain->figure.algorithm,
                            format_micros(Micros(plain->figure.median_us())));
      } else {
        line += plain == best ? ", plain SGD" : "; plain SGD did not always reach it";
      }
    }
    lines.push_back(line + ": query time_to_target");
  }
  return lines;
}

std::string without_result(const Reader& reader, const std::string& run, std::size_t width) {
  std::string out;
  for (const bool unsupported : {false, true}) {
    const Table table = cells_without_result(reader, run, unsupported);
    const TableView rows(table);
    std::int64_t cells = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) cells += rows.integer(i, "cells");
    if (cells == 0) continue;
    out += wrapped(fmt::format("{} {}: {} {}: {}{}", counted(cells, "cell"),
                               unsupported ? "unsupported here" : "failed or not measured",
                               rows.text(0, "environment"), rows.text(0, "backend"),
                               rows.text(0, "reason").empty() ? rows.text(0, "status")
                                                              : rows.text(0, "reason"),
                               rows.size() > 1 ? "; the others: query failures" : ""),
                   width);
  }
  return out;
}

/// The first lines, then how many more there are.
std::string some_lines(const std::vector<std::string>& lines, std::size_t most,
                       const std::string& where, std::size_t width) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, lines.size()); ++i) out += wrapped(lines[i], width);
  if (lines.size() > most) out += fmt::format("  and {} more: {}\n", lines.size() - most, where);
  return out;
}

/// A command to be copied; what it is for stands behind it where the line has room.
std::string command_line_of(const std::string& begin, const std::string& what_for,
                            std::size_t width) {
  const std::string whole = begin + "    " + what_for;
  return (whole.size() <= width ? whole : begin) + "\n";
}

/// The query that is looked at next.
struct Follow {
  std::string_view query;
  std::string_view what_for;
};
constexpr std::string_view kEveryCell = "every cell with its interval";
constexpr Follow kOverhead{"overhead", kEveryCell};

/// Where nothing was measured there are no times to look at.
Follow follow_of_nothing(const Reader& reader, const std::string& run) {
  QueryScope scope;
  scope.runs = {run};
  if (!named_query(reader, "failures", scope).rows.empty())
    return {"failures", "what failed or was left out, and why"};
  return {"coverage", "what became of every cell"};
}

/// What is typed to go on, for the database that the answer is of.
std::string next_text(const Reader& reader, const std::string& run, const std::string& page,
                      const Follow& follow, std::size_t width) {
  const std::string id = run.substr(0, 8);
  const std::string db = db_words(reader.path());
  std::string out = "\n";
  if (!page.empty()) out += "page: " + page + "\n";
  out += command_line_of(fmt::format("next: dynamiccl query {} --run {}{}", follow.query, id, db),
                         std::string(follow.what_for), width);
  if (page.empty())
    out += command_line_of(fmt::format("      dynamiccl report {} --html{}", id, db),
                           "the page, with charts and causes", width);
  if (follow.query == kOverhead.query)
    out += command_line_of("      dynamiccl doctor",
                           "looks for causes; with --prove measures fixes", width);
  return out;
}

/// What speaks against the figures, the gravest first.
std::string flags_text(const Reader& reader, const std::string& run, std::int64_t row,
                       const std::vector<CellFigure>& figures, const std::string& busy,
                       std::size_t width) {
  auto doubted = doubts(reader, run, figures);
  if (!busy.empty())
    std::erase_if(doubted, [](const auto& text) { return text.starts_with("noise gate:"); });
  // What is known to be a bad choice is no doubt, and comes before all of them.
  if (!synchronisation_warnings(reader, row, figures).empty())
    doubted.insert(
        doubted.begin(),
        "tier 4: the survey calls synchronous steps with plain gradients infeasible; see "
        "report");
  return busy + some_lines(doubted, 3, "query noise, warmup, independence", width);
}

/// What was measured, but for training, in at most so many rows.
std::string table_text(const std::vector<CellFigure>& figures, const std::vector<CellCost>& costs,
                       const std::map<Place, std::string>& moved, std::size_t most,
                       std::size_t width) {
  return costs.empty() ? times_text(figures, most, width)
                       : costs_text(figures, costs, moved, most, width);
}

}  // namespace

std::string render_first_answer(const Reader& reader, const std::string& run_id, int launches,
                                int of, std::size_t columns) {
  const std::size_t width = std::max(columns, kLeastWidth);
  const auto row = run_scope(reader, reader.resolve_run(run_id));
  const auto figures = load_figures(reader, row);
  const std::string text =
      table_text(figures, costs_of(figures), moved_by(reader, row.front()), kMostRows, width) +
      some_lines(training_text(reader, row.front(), figures), 3, "query training", width);
  const char* what = text.empty() ? "nothing was measured" : "medians, without intervals";
  const auto head = fmt::format("after {} of {} launches of each group: {}", launches, of, what);
  return wrapped(head, width) + text;
}

std::string render_answer(const Reader& reader, const std::string& run_id, const std::string& page,
                          std::size_t columns) {
  const std::size_t width = std::max(columns, kLeastWidth);
  const std::string run = reader.resolve_run(run_id);
  const auto row = run_scope(reader, run);
  const Table info = reader.query("SELECT name, status FROM run WHERE uuid = ?1", {run});
  const TableView about(info);
  const std::string head = wrapped(fmt::format("run {} ({}), {}: {}", run, about.text(0, "name"),
                                               about.text(0, "status"), cell_counts(reader, run)),
                                   width);
  const auto figures = load_figures(reader, row);
  const auto costs = costs_of(figures);
  const std::string busy = busy_text(figures, costs, width);
  auto training = target_text(reader, row.front());
  const bool targets = !training.empty();
  for (auto& line : training_text(reader, row.front(), figures))
    training.push_back(std::move(line));
  const std::string flags = flags_text(reader, run, row.front(), figures, busy, width);
  // On a busy machine the extremes are its own.
  std::string rest =
      (busy.empty() ? extremes_text(costs, width) : "") +
      causes_text(reader, run, row.front(), width) +
      some_lines(training, 3, targets ? "query time_to_target" : "query training", width) +
      without_result(reader, run, width);
  const Follow follow = figures.empty()     ? follow_of_nothing(reader, run)
                        : !costs.empty()    ? kOverhead
                        : targets           ? Follow{"time_to_target", "every time to a target"}
                        : !training.empty() ? Follow{"training", kEveryCell}
                                            : Follow{"latency", kEveryCell};
  rest += next_text(reader, run, page, follow, width);
  if (figures.empty()) return head + flags + rest;
  const auto moved = moved_by(reader, row.front());
  // As many rows as the screen has room for: one may take several lines.
  for (std::size_t most = kMostRows;; --most) {
    std::string answer = head + flags + table_text(figures, costs, moved, most, width) + rest;
    if (most == kLeastRows || static_cast<std::size_t>(std::ranges::count(answer, '\n')) <= kLines)
      return answer;
  }
}

}  // namespace dynamiccl
