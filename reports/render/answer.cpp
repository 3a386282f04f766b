#include "reports/render/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "db/usual_db.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/regime_causes.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/synchronisation_modes.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/training_report.hpp"
#include "reports/model/trust.hpp"
#include "reports/model/waits.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/humanise.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kUsualWidth = 100;
constexpr std::size_t kLeastWidth = 60;
constexpr std::size_t kLines = 30;            // of the usual width
constexpr std::size_t kMostEnvironments = 6;  // fewer where the rest is long
constexpr std::size_t kLeastEnvironments = 4;
constexpr std::size_t kMostCauses = 2;
constexpr std::size_t kMostDoubts = 3;
constexpr std::size_t kLongDoubt = 2;  // lines
constexpr std::size_t kBusyLines = 3;  // whole, as what to do stands at their end

/// How many lines of this width hold what `lines` of the usual one do.
std::size_t lines_for(std::size_t lines, std::size_t width) {
  return width >= kUsualWidth ? lines : (lines * kUsualWidth + width - 1) / width;
}

/// The line with " ..." where it ends, cut before a word and never behind a number: "2" of
/// "23.5 GiB" and "1" of "1 of 2 launches" would say something else.
std::string with_more(std::string line, std::size_t width) {
  constexpr std::string_view kMore = " ...";
  const auto ends_in_number = [&] {
    return !line.empty() && std::isdigit(static_cast<unsigned char>(line.back())) != 0;
  };
  while (line.size() + kMore.size() > width || ends_in_number()) {
    const auto blank = line.find_last_of(' ');
    const auto before = line.find_last_not_of(' ', blank);
    if (blank == std::string::npos || before == std::string::npos) break;  // one word
    line.resize(before + 1);
  }
  if (line.size() + kMore.size() > width) line.resize(width - kMore.size());
  return line + std::string(kMore);
}

/// The text in lines of `width` columns, those after the first indented: what `most` of the usual
/// width hold.
std::string wrapped(const std::string& text, const std::string& indent, std::size_t most,
                    std::size_t width) {
  most = lines_for(most, width);
  std::vector<std::string> lines{""};
  for (const auto& word : split(one_line(text), ' ')) {
    if (word.empty()) continue;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.push_back(indent);
    auto& line = lines.back();
    line += (line.empty() || line == indent ? "" : " ") + word;
    if (line.size() > width) line.resize(width);
  }
  if (lines.size() > most) {
    lines.resize(most);
    lines.back() = with_more(lines.back(), width);
  }
  return join(lines, "\n") + "\n";
}

/// One cell beside the same on bare metal.
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
  return wrapped(busy, "  ", kBusyLines, width) +
         (sure.empty() ? "" : wrapped("surely all the same: " + join(sure, "; "), "  ", 1, width));
}

/// By environment: "cma 12.3 GB, tcp 1.2 MB", the most first.
std::map<std::string, std::string> moved_by(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.environment, t.transport, sum(t.payload_bytes) AS bytes FROM v_launch v "
      "JOIN transport t ON t.launch_id = v.launch_row WHERE v.run_row = ?1 "
      "AND v.launch_status = 'ok' GROUP BY 1, 2 ORDER BY 1, 3 DESC",
      {run});
  const TableView rows(table);
  std::map<std::string, double> sums;
  for (std::size_t i = 0; i < rows.size(); ++i)
    sums[rows.text(i, "environment")] += rows.real(i, "bytes").value_or(0);
  std::map<std::string, std::string> told;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double sum = sums[rows.text(i, "environment")];
    const double share = sum > 0 ? 100 * rows.real(i, "bytes").value_or(0) / sum : 0;
    if (share < 0.5 && sum > 0) continue;
    auto& text = told[rows.text(i, "environment")];
    text += (text.empty() ? "" : ", ") + rows.text(i, "transport") +
            (sum > 0 ? fmt::format(" {:.0f} %", share) : "");
  }
  return told;
}

std::string in_columns(std::string text, std::size_t width) {
  if (text.size() > width) text.resize(width);
  return text + std::string(width - text.size(), ' ');
}

/// As much of a list as there is room for, said where that is not all of it.
std::string list_within(const std::string& list, std::size_t width) {
  constexpr std::string_view kMore = " ...";
  if (list.size() <= width) return list;
  if (width < kMore.size()) return "";
  const auto comma = list.rfind(", ", width - kMore.size());
  return (comma == std::string::npos ? "" : list.substr(0, comma + 1)) + std::string(kMore);
}

/// @param named columns of the environments' names @param shares there is room for "surely slower"
std::string cost_line(const std::string& environment, const std::vector<CellCost>& costs,
                      std::size_t cells, const std::string& moved, std::size_t named, bool shares,
                      std::size_t width) {
  std::string line = in_columns(environment, named) + "  ";
  std::vector<double> ratios;
  std::size_t slower = 0;
  bool judged = false;  // one launch has no interval
  for (const auto& cost : costs) {
    if (cost.figure->environment != environment) continue;
    ratios.push_back(cost.ratio.value);
    judged = judged || cost.ratio.interval.has_value();
    slower += cost.verdict == Verdict::slower ? 1 : 0;
  }
  line += fmt::format("{:>5}  ", cells);
  if (ratios.empty()) {
    std::string why = environment != "bare-metal" ? "not on bare metal"
                      : costs.empty()             ? "no other environment"
                                                  : "1: the others against it";
    if (shares && (environment != "bare-metal" || costs.empty())) why += " in this run";
    line += in_columns(std::move(why), shares ? 40 : 26);
  } else {
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    line += in_columns(fmt::format("{} [{} .. {}]", format_number(median(ratios)),
                                   format_number(*low), format_number(*high)),
                       26);
    if (shares)
      line +=
          in_columns(judged ? fmt::format("{} of {}", slower, ratios.size()) : "not judged", 14);
  }
  line += list_within(moved, width - std::min(line.size(), width));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

/// @param most environments
std::string costs_text(const std::vector<CellFigure>& figures, const std::vector<CellCost>& costs,
                       const std::map<std::string, std::string>& moved, std::size_t most,
                       std::size_t width) {
  constexpr std::size_t kOthers = 49;  // columns of what stands behind a name, data moved left out
  std::map<std::pair<std::size_t, std::string>, std::size_t> cells;
  for (const auto& figure : figures) ++cells[environment_order(figure.environment)];
  std::map<std::pair<std::size_t, std::string>, std::string> names;
  for (const auto& figure : figures)
    names[environment_order(figure.environment)] = figure.environment;
  std::size_t named = std::string_view("environment").size();
  for (const auto& [place, name] : names) named = std::max(named, name.size());
  // Names tell rows apart: where there is not enough room for all, a count gives way.
  named = std::min(named, std::size_t{28});
  const bool shares = named + kOthers <= width;
  std::string out = "\n" + in_columns("environment", named) + "  cells  " +
                    in_columns("time / bare metal", 26) +
                    (shares ? in_columns("surely slower", 14) : "");
  const std::size_t room = width + 1 - std::min(out.size(), width + 1);
  const std::string_view moved_by_head = "data moved by";
  const bool moves = room > 9;
  out += room >= moved_by_head.size() ? moved_by_head : moves ? "moved by" : "";
  out.erase(out.find_last_not_of(' ') + 1);
  out += "\n";
  std::size_t told = 0;
  for (const auto& [place, name] : names) {
    if (told++ == most) {
      out += fmt::format("and {} more: query overhead\n", names.size() - most);
      break;
    }
    const auto found = moved.find(name);
    out += cost_line(name, costs, cells[place], found == moved.end() ? "" : found->second, named,
                     shares, width);
  }
  std::vector<std::string> left_out;
  if (!shares && !costs.empty()) left_out.emplace_back("surely slower: query overhead");
  if (!moves && !moved.empty()) left_out.emplace_back("data moved by: query transports");
  if (left_out.empty()) return out;
  return out + wrapped("no room for " + join(left_out, ", "), "  ", 1, width);
}

std::string cell_text(const CellCost& cost) {
  const CellFigure& f = *cost.figure;
  std::string ratio = format_number(cost.ratio.value);
  if (cost.ratio.interval)
    ratio += fmt::format(" [{}, {}]", format_number(cost.ratio.interval->low),
                         format_number(cost.ratio.interval->high));
  return fmt::format("{} x bare metal, {}: {} {} {} {} {}", ratio, name_of(cost.verdict),
                     f.environment, f.backend, f.architecture, f.collective,
                     f.collective == "training"
                         ? f.algorithm
                         : format_bytes(Bytes(static_cast<std::uint64_t>(f.size_bytes))));
}

std::string extremes_text(const std::vector<CellCost>& costs, std::size_t width) {
  if (costs.empty()) return "";
  const auto [best, worst] = std::minmax_element(
      costs.begin(), costs.end(),
      [](const auto& a, const auto& b) { return a.ratio.value < b.ratio.value; });
  return wrapped("worst: " + cell_text(*worst), "  ", 1, width) +
         wrapped("best: " + cell_text(*best), "  ", 1, width);
}

/// Why, by environment, each with its fix on a line of its own, so that no evidence cuts it.
/// Those that are bare metal's too explain no difference.
std::string causes_text(const Reader& reader, const std::string& run_uuid, std::int64_t run,
                        std::size_t width) {
  const Table table = reader.query(
      "SELECT v.environment, v.backend, l.regime_json FROM v_launch v "
      "JOIN launch l ON l.id = v.launch_row WHERE v.run_row = ?1 AND v.launch_status = 'ok' "
      "AND v.regime_id IS NOT NULL GROUP BY v.environment, v.backend, v.regime_id "
      "ORDER BY v.environment",
      {run});
  const TableView rows(table);
  auto crowding = crowding_of(reader, run_uuid);
  std::map<std::string, std::map<std::string, std::string>> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto regime = stored_json(rows.text(i, "regime_json"));
    if (!regime.is_object()) continue;
    const auto& crowded = crowding[{rows.text(i, "environment"), rows.text(i, "backend")}];
    for (const auto& cause : regime_causes(regime, crowded))
      found[rows.text(i, "environment")].emplace(cause.text, cause.fix);
  }
  const auto usual = found["bare-metal"];
  std::string out;
  std::size_t told = 0;
  for (const auto& [environment, causes] : found) {
    if (environment == "bare-metal") continue;
    for (const auto& [text, fix] : causes) {
      if (usual.contains(text) || fix.empty()) continue;
      if (told++ < kMostCauses)
        out += wrapped(fmt::format("why {}: {}", environment, text), "  ", 1, width) +
               fmt::format("  fix: {}\n", fix);
    }
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

/// @param nothing was measured: reasons are the whole answer, and have the room of the figures
std::string without_result(const Reader& reader, const std::string& run, bool nothing,
                           std::size_t width) {
  constexpr std::size_t kWhole = 8;
  std::string out;
  for (const bool unsupported : {false, true}) {
    const Table table = cells_without_result(reader, run, unsupported);
    const TableView rows(table);
    std::int64_t cells = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) cells += rows.integer(i, "cells");
    if (cells == 0) continue;
    out += wrapped(fmt::format("{} {}: {} {}: {}", counted(cells, "cell"),
                               unsupported ? "unsupported here" : "failed or not measured",
                               rows.text(0, "environment"), rows.text(0, "backend"),
                               rows.text(0, "reason").empty() ? rows.text(0, "status")
                                                              : rows.text(0, "reason")),
                   "  ",
                   nothing       ? kWhole
                   : unsupported ? 1
                                 : 2,
                   width);
  }
  return out;
}

/// The first lines, then how many more there are.
std::string some_lines(const std::vector<std::string>& lines, std::size_t most,
                       std::size_t lines_each, const std::string& where, std::size_t width) {
  std::string out;
  for (std::size_t i = 0; i < std::min(most, lines.size()); ++i)
    out += wrapped(lines[i], "  ", lines_each, width);
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

}  // namespace

std::string render_answer(const Reader& reader, const std::string& run_id, const std::string& page,
                          std::size_t columns) {
  const std::size_t width = std::max(columns, kLeastWidth);
  const std::string run = reader.resolve_run(run_id);
  const auto row = run_scope(reader, run);
  const Table info = reader.query("SELECT name, status FROM run WHERE uuid = ?1", {run});
  const TableView about(info);
  const std::string head = wrapped(fmt::format("run {} ({}), {}: {}", run, about.text(0, "name"),
                                               about.text(0, "status"), cell_counts(reader, run)),
                                   "  ", 2, width);
  const auto figures = load_figures(reader, row);
  const auto costs = costs_of(figures);
  const std::string busy = busy_text(figures, costs, width);
  const auto training = training_text(reader, row.front(), figures);
  // On a busy machine the extremes are its own.
  std::string rest = (busy.empty() ? extremes_text(costs, width) : "") +
                     causes_text(reader, run, row.front(), width) +
                     some_lines(training, 2, 1, "query training", width);
  // Without training there is room for what else they say: why, and by how much.
  const std::size_t doubt_lines = training.empty() ? kLongDoubt : 1;
  auto doubted = doubts(reader, run, figures);
  if (!busy.empty())
    std::erase_if(doubted, [](const auto& text) { return text.starts_with("noise gate:"); });
  // What is known to be a bad choice is no doubt, and comes before all of them.
  if (!synchronisation_warnings(reader, row.front(), figures).empty())
    doubted.insert(
        doubted.begin(),
        "tier 4: the survey calls synchronous steps with plain gradients infeasible; see "
        "report");
  const std::size_t most_doubts = busy.empty() ? kMostDoubts : kMostDoubts - 1;
  rest += some_lines(doubted, most_doubts, doubt_lines, "query noise, warmup, independence", width);
  rest += without_result(reader, run, figures.empty(), width);
  const Follow follow = figures.empty()     ? follow_of_nothing(reader, run)
                        : !costs.empty()    ? kOverhead
                        : !training.empty() ? Follow{"training", kEveryCell}
                                            : Follow{"latency", kEveryCell};
  rest += next_text(reader, run, page, follow, width);
  constexpr std::size_t kCauses = 2 * kMostCauses + 1;
  constexpr std::size_t kTraining = 3;
  constexpr std::size_t kTableFrame = 2 + 1;  // blank and head, "and ... more"
  constexpr std::size_t kLeftOut = 2;         // lines, of narrower terminals
  static_assert(kMostDoubts * kLongDoubt <= kMostDoubts + kTraining);
  // Four lines of a busy machine stand in the place of the extremes and of a doubt.
  static_assert(kBusyLines + 1 <= 2 + kLongDoubt);
  static_assert(kLines >= 2 + kTableFrame + kLeastEnvironments + 2 + kCauses + kTraining +
                              kMostDoubts + 1 + 3 + 4);
  if (figures.empty()) return head + rest;
  const auto used = static_cast<std::size_t>(std::ranges::count(head + busy + rest, '\n'));
  const std::size_t lines = lines_for(kLines, width);
  const std::size_t frame = kTableFrame + (width < kUsualWidth ? kLeftOut : 0);
  const std::size_t most =
      std::clamp(lines - std::min(lines, used + frame), kLeastEnvironments, kMostEnvironments);
  return head + busy + costs_text(figures, costs, moved_by(reader, row.front()), most, width) +
         rest;
}

}  // namespace dynamiccl
