#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/group_tiers.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// A configuration that was measured for a piece of work.
struct Candidate {
  CellFigure figure;  ///< ranks are workers where architectures are compared
  TrainedCell trained;
  GroupTier tier;
};

/// The work itself: what must be done, however and wherever.
auto work_of(const Candidate& c) {
  const CellFigure& f = c.figure;
  return std::tuple(f.run_id, f.collective, c.trained.model, c.trained.batch, f.size_bytes, f.ranks,
                    f.datatype, f.in_place);
}

/// The nearest tier first, what is not known last; in a tier the environments in their order.
auto place_of(const Candidate& c) {
  return std::tuple(c.tier.tier.value_or(99), environment_order(c.figure.environment));
}

std::vector<Candidate> load_candidates(const Reader& reader, std::int64_t run) {
  const auto tiers = tiers_of_groups(reader, run);
  const auto figures = load_figures(reader, {run});
  std::set<std::string> architectures;
  for (const auto& figure : figures) architectures.insert(figure.architecture);
  std::vector<Candidate> candidates;
  for (const auto& figure : figures) {
    const auto tier = tiers.find(group_key(figure));
    if (tier == tiers.end()) continue;
    const bool training = figure.collective == "training";
    if (!compares_by_time(figure)) continue;
    if (training) {
      Candidate one{figure, trained_cell(figure), tier->second};
      one.figure.ranks = one.trained.workers;
      one.figure.cell_knobs = one.trained.settings.dump();
      candidates.push_back(std::move(one));
      continue;
    }
    candidates.push_back({figure, {}, tier->second});
    if (architectures.size() < 2) continue;
    for (auto& exchange : as_exchanges({figure}))
      candidates.push_back({std::move(exchange), {}, tier->second});
  }
  return candidates;
}

/// What searches left in force: environment and task, and the settings' names.
using Choices = std::map<std::string, std::map<std::string, std::set<std::string>>>;

Choices final_choices(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT DISTINCT d.environment, d.task_key, d.arm FROM decision d "
      "JOIN tuning t ON t.id = d.tuning_id WHERE t.run_id = ?1 AND d.kind = 'final'",
      {run});
  const TableView rows(table);
  Choices choices;
  for (std::size_t i = 0; i < rows.size(); ++i)
    choices[rows.text(i, "environment")][rows.text(i, "task_key")].insert(rows.text(i, "arm"));
  return choices;
}

/// The choices for a figure's task, on however many nodes.
std::string chosen_for(const CellFigure& f, const Choices& choices) {
  const auto found = choices.find(f.environment);
  if (found == choices.end()) return "";
  const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(1, f.size_bytes));
  const auto task = fmt::format("{}/{}/{}/2^{}/r{}n", f.backend, f.architecture, f.collective,
                                std::bit_width(size) - 1, f.ranks);
  std::set<std::string> arms;
  for (const auto& [key, of_task] : found->second)
    if (key.starts_with(task)) arms.insert(of_task.begin(), of_task.end());
  return join({arms.begin(), arms.end()}, " | ");
}

/// The configurations of one piece of work at one place, the fastest first.
using Place = std::vector<const Candidate*>;

std::vector<Place> places_of(const std::vector<const Candidate*>& of_work) {
  std::map<decltype(place_of(Candidate{})), Place> by_place;
  for (const auto* candidate : of_work) by_place[place_of(*candidate)].push_back(candidate);
  std::vector<Place> places;
  for (auto& [where, place] : by_place) {
    std::stable_sort(place.begin(), place.end(), [](const auto* a, const auto* b) {
      return a->figure.median_us() < b->figure.median_us();
    });
    places.push_back(std::move(place));
  }
  return places;
}

/// Ratios of a run's rows that are judged together, and what their verdicts are written as.
class TierVerdicts {
 public:
  void add(const std::string& run, const Ratio& ratio, std::size_t row, std::size_t column,
           std::string sure, std::string unsure) {
    runs_.push_back(run);
    ratios_.push_back(ratio);
    places_.push_back({row, column, std::move(sure), std::move(unsure)});
  }
  void tell(Table& table) const {
    const auto verdicts = judge_by_run(runs_, ratios_);
    for (std::size_t i = 0; i < places_.size(); ++i)
      table.rows[places_[i].row][places_[i].column] =
          verdicts[i] == Verdict::slower ? places_[i].sure : places_[i].unsure;
  }

 private:
  struct Written {
    std::size_t row;
    std::size_t column;
    std::string sure;
    std::string unsure;
  };
  std::vector<std::string> runs_;
  std::vector<Ratio> ratios_;
  std::vector<Written> places_;
};

class TierRows {
 public:
  TierRows(Table& table, const Choices& choices, TierVerdicts& judged)
      : table_(table), choices_(choices), judged_(judged) {}

  void add_work(const std::vector<Place>& places) {
    for (const auto& place : places) add_place(place, *places.front().front());
  }

 private:
  void add_place(const Place& place, const Candidate& nearest) {
    const Candidate& best = *place.front();
    const CellFigure& f = best.figure;
    std::vector<Value> row{f.run_id,
                           f.collective,
                           or_null(best.trained.model),
                           best.trained.batch == 0 ? Value{} : Value{best.trained.batch},
                           f.size_bytes,
                           f.ranks,
                           f.datatype,
                           f.in_place,
                           best.tier.tier ? Value{std::int64_t{*best.tier.tier}} : Value{},
                           best.tier.link,
                           f.environment,
                           static_cast<std::int64_t>(place.size()),
                           static_cast<std::int64_t>(f.launches.size()),
                           choice_of(f),
                           f.median_us()};
    add_bounds(row, f.interval());
    const std::size_t at = table_.rows.size();
    if (place.size() < 2) {
      row.resize(row.size() + 5);
    } else {
      const CellFigure& second = place[1]->figure;
      std::vector<const CellFigure*> candidates;
      for (const auto* candidate : place) candidates.push_back(&candidate->figure);
      const Ratio lead = lead_ratio(candidates);
      row.emplace_back(choice_of(second));
      row.emplace_back(lead.value);
      add_bounds(row, lead.interval);
      judged_.add(f.run_id, lead, at, row.size(), "yes", "no");
      row.emplace_back();
    }
    add_kept(row, place, nearest, at);
    row.push_back(or_null(chosen_for(f, choices_)));
    table_.rows.push_back(std::move(row));
  }

  /// What the configuration of the nearest place costs here.
  void add_kept(std::vector<Value>& row, const Place& place, const Candidate& nearest,
                std::size_t at) {
    const std::string wanted = choice_of(nearest.figure);
    const auto kept = std::find_if(place.begin(), place.end(), [&](const Candidate* candidate) {
      return choice_of(candidate->figure) == wanted;
    });
    if (kept == place.begin()) {
      row.resize(row.size() + 3);
      row.emplace_back(std::string(*kept == &nearest ? "the nearest: base" : "the same"));
      return;
    }
    if (kept == place.end()) {
      row.resize(row.size() + 3);
      row.emplace_back(std::string("another; the base's was not measured here"));
      return;
    }
    const Ratio cost = time_ratio((*kept)->figure, place.front()->figure);
    row.emplace_back(cost.value);
    add_bounds(row, cost.interval);
    judged_.add(place.front()->figure.run_id, cost, at, row.size(), "another, surely",
                "another, not surely");
    row.emplace_back();
  }

  Table& table_;
  const Choices& choices_;
  TierVerdicts& judged_;
};

bool of_several_tiers(const std::vector<Place>& places) {
  std::set<int> tiers;
  for (const auto& place : places)
    if (place.front()->tier.tier) tiers.insert(*place.front()->tier.tier);
  return tiers.size() > 1;
}

Table tiers_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                  const QueryScope& /*scope*/) {
  Table table;
  TierVerdicts judged;
  for (const std::int64_t run : runs) {
    const auto candidates = load_candidates(reader, run);
    const auto choices = final_choices(reader, run);
    std::map<decltype(work_of(Candidate{})), std::vector<const Candidate*>> works;
    for (const auto& candidate : candidates) works[work_of(candidate)].push_back(&candidate);
    TierRows rows(table, choices, judged);
    for (const auto& [work, of_work] : works) {
      const auto places = places_of(of_work);
      if (of_several_tiers(places)) rows.add_work(places);
    }
  }
  judged.tell(table);
  return table;
}

}  // namespace

Query tiers_query() {
  return {.title = "Configuration per tier",
          .row =
              "one piece of work on one tier (1 shared memory or NVLink, 2 PCIe or a network of "
              "100 Gb/s, 3 of 25 Gb/s, 4 slower): the best configuration, and what keeping the "
              "nearest tier's costs",
          .columns = R"(
run_id collective model batch
size_bytes | bytes, integer, exact, told | payload of a call
ranks datatype in_place
tier | integer | 1 shared memory or NVLink, 2 PCIe or a network of 100 Gb/s, 3 of 25 Gb/s, 4 slower
link | text | the link of that tier
environment
candidates | integer | configurations that were measured
launches
best | text | the fastest configuration
median_us runner_up lead lead_is_sure
kept | real, interval | time of the nearest tier's configuration here over the best here
configuration | text | whether it is another one than on the nearest tier
left_by_search | text, told | what a search of this run left in force
)",
          .method = verdict_method(
              "exchange (push_pull or allreduce) and training count workers as ranks; kept = time "
              "of the nearest tier's configuration here / of the best here; "),
          .measured_by = "run experiments/environment_grid.toml",
          .of_runs = tiers_table};
}

}  // namespace dynamiccl
