#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kNeighbourKnob = "env.DYNAMICCL_NEIGHBOUR";
constexpr const char* kAlone = "none";

/// One operation next to one neighbour: its settings by their text.
using SweptSettings = std::map<std::string, const CellFigure*>;

/// The neighbour of a cell's launches, and what else its settings are.
std::pair<std::string, std::string> neighbour_and_setting(const CellFigure& figure) {
  auto knobs = json_or_discarded(figure.group_knobs);
  std::string neighbour = kAlone;
  if (knobs.is_object()) {
    const auto at = knobs.find(kNeighbourKnob);
    if (at != knobs.end() && at->is_string() && *at != "default") neighbour = *at;
    knobs.erase(kNeighbourKnob);
  }
  std::string text = figure.algorithm;
  if (knobs.is_object() && !knobs.empty()) text += " " + knobs.dump();
  if (!figure.cell_knobs.empty() && figure.cell_knobs != "{}") text += " " + figure.cell_knobs;
  return {neighbour, text};
}

/// Every other launch: what is chosen on some is judged on the others.
CellFigure launches_of(const CellFigure& figure, bool odd) {
  CellFigure part = figure;
  std::erase_if(part.launches,
                [&](const LaunchFigure& launch) { return (launch.block % 2 != 0) != odd; });
  return part;
}

/// The fastest setting on the even launches; nullptr where none has any.
const CellFigure* fastest_of(const SweptSettings& settings) {
  const CellFigure* best = nullptr;
  double best_us = 0;
  for (const auto& [text, figure] : settings) {
    const CellFigure seen = launches_of(*figure, false);
    if (seen.launches.empty()) continue;
    if (best == nullptr || seen.median_us() < best_us) {
      best = figure;
      best_us = seen.median_us();
    }
  }
  return best;
}

struct BesideChoice {
  std::string neighbour;
  const CellFigure* alone = nullptr;  ///< chosen without the neighbour
  const CellFigure* blind = nullptr;  ///< the same setting, next to it
  const CellFigure* own = nullptr;    ///< chosen next to it
  Ratio ratio;                        ///< own over blind, on the other launches
  std::string blind_text, own_text;
  std::size_t settings = 0;
};

std::vector<BesideChoice> choices_of(const std::vector<CellFigure>& figures) {
  std::map<std::string, std::map<std::string, SweptSettings>> operations;
  std::vector<std::string> order;
  for (const CellFigure& figure : figures) {
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", figure.run_id, figure.environment,
                    figure.backend, figure.architecture, figure.collective, figure.ranks,
                    figure.size_bytes, figure.datatype, figure.in_place);
    if (!operations.contains(key)) order.push_back(key);
    const auto [neighbour, text] = neighbour_and_setting(figure);
    operations[key][neighbour][text] = &figure;
  }
  std::vector<BesideChoice> choices;
  for (const std::string& key : order) {
    const auto alone = operations[key].find(kAlone);
    if (alone == operations[key].end()) continue;
    for (const auto& [neighbour, settings] : operations[key]) {
      if (neighbour == kAlone || settings.size() < 2) continue;
      BesideChoice choice;
      choice.neighbour = neighbour;
      choice.settings = settings.size();
      choice.alone = fastest_of(alone->second);
      choice.own = fastest_of(settings);
      if (choice.alone == nullptr || choice.own == nullptr) continue;
      choice.blind_text = neighbour_and_setting(*choice.alone).second;
      choice.own_text = neighbour_and_setting(*choice.own).second;
      const auto same = settings.find(choice.blind_text);
      if (same == settings.end()) continue;
      choice.blind = same->second;
      // Launches that chose nothing are what a choice is judged by.
      if (launches_of(*choice.own, true).launches.empty() ||
          launches_of(*choice.blind, true).launches.empty())
        continue;
      if (choice.own != choice.blind)
        choice.ratio = time_ratio(launches_of(*choice.own, true), launches_of(*choice.blind, true));
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

Table neighbour_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  const std::vector<BesideChoice> choices = choices_of(figures);
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const BesideChoice& choice : choices) {
    runs.push_back(choice.own->run_id);
    ratios.push_back(choice.ratio);
  }
  const auto verdicts = judge_by_run(runs, ratios);
  Table table;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const BesideChoice& choice = choices[i];
    const CellFigure& own = *choice.own;
    const bool alike = choice.own == choice.blind;
    const double beside_us = launches_of(*choice.blind, true).median_us();
    std::vector<Value> row{own.run_id,
                           own.environment,
                           own.backend,
                           own.architecture,
                           own.collective,
                           own.ranks,
                           own.size_bytes,
                           choice.neighbour,
                           static_cast<std::int64_t>(choice.settings),
                           choice.blind_text,
                           choice.alone->median_us(),
                           beside_us,
                           choice.own_text,
                           launches_of(own, true).median_us(),
                           alike ? Value{1.0} : Value{choice.ratio.value}};
    add_bounds(row, alike ? std::nullopt : choice.ratio.interval);
    row.push_back(alike ? Value{} : Value{std::string(name_of(verdicts[i]))});
    row.emplace_back(static_cast<std::int64_t>(own.launches.size()));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Query beside_neighbour_query() {
  return {.title = "Settings chosen with a neighbour on the machine, and without",
          .row =
              "one operation of which settings were swept with and without a neighbour "
              "(env.DYNAMICCL_NEIGHBOUR): what is fastest with it against what was fastest alone",
          .columns = R"(
run_id environment backend architecture collective ranks size_bytes
neighbour | text | what computes or sends on the ranks' machine
settings | integer | how many were measured with the neighbour
blind_setting | text | the fastest without a neighbour, on every other launch
blind_alone_us | us, real | its median without the neighbour
blind_us | us, real | its median with the neighbour, on the launches that chose nothing
own_setting | text | the fastest with the neighbour, on every other launch
own_us | us, real | its median with the neighbour, on the launches that chose nothing
ratio verdict launches
)",
          .method = verdict_method("settings are chosen on even launches and judged on odd ones; "),
          .needs =
              "settings swept with and without a neighbour, each in even launches (counted from "
              "0), which choose, and in odd ones, which judge",
          .measured_by = "run experiments/beside_neighbour.toml",
          .of_figures = neighbour_table};
}

}  // namespace dynamiccl
