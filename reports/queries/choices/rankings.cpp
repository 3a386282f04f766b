#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/published/reference.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

/// Figures of one cell that differ in the backend alone, by backend.
using Backends = std::map<std::string, const CellFigure*>;

/// A published backend that was measured, as the fastest figure that stands for it.
struct Measured {
  PublishedRanking::Place published;
  const CellFigure* figure = nullptr;
};

const CellFigure* stands_for(const std::string& published, const Backends& backends) {
  const CellFigure* best = nullptr;
  for (const auto& [backend, figure] : backends) {
    const auto ours = find_named<Backend>(backend);
    const bool family = published == "mpi" && ours && is_host_mpi(*ours);
    if (backend != published && !family) continue;
    if (best == nullptr || figure->median_us() < best->median_us()) best = figure;
  }
  return best;
}

/// In the published order.
std::vector<Measured> measured_of(const PublishedRanking& ranking, const Backends& backends) {
  std::vector<Measured> found;
  for (const auto& place : ranking.fastest_first)
    if (const auto* figure = stands_for(place.backend, backends)) found.push_back({place, figure});
  return found;
}

std::string published_order(const PublishedRanking& ranking) {
  std::vector<std::string> parts;
  for (const auto& place : ranking.fastest_first)
    parts.push_back(fmt::format("{} {:g} s", place.backend, place.seconds));
  return join(parts, ", ");
}

std::string measured_order(std::vector<Measured> measured) {
  std::stable_sort(measured.begin(), measured.end(), [](const auto& a, const auto& b) {
    return a.figure->median_us() < b.figure->median_us();
  });
  std::vector<std::string> parts;
  for (const auto& [published, figure] : measured)
    parts.push_back(
        fmt::format("{} {}", figure->backend, format_micros(Micros(figure->median_us()))));
  return join(parts, ", ");
}

/// Neighbours of the published order in the rows they belong to.
struct Pairs {
  std::vector<std::size_t> rows;
  std::vector<std::string> names;  ///< "mpich before openmpi": what a contradiction is called
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  std::vector<double> published;   ///< the second's time over the first's
  std::vector<std::string> sides;  ///< "mpich / openmpi": what is over what
};

void add_pairs(const std::vector<Measured>& measured, std::size_t row, Pairs& pairs) {
  for (std::size_t i = 0; i + 1 < measured.size(); ++i) {
    const CellFigure& first = *measured[i].figure;
    const CellFigure& second = *measured[i + 1].figure;
    pairs.rows.push_back(row);
    pairs.names.push_back(second.backend + " before " + first.backend);
    pairs.runs.push_back(first.run_id);
    pairs.ratios.push_back(time_ratio(second, first));
    pairs.published.push_back(measured[i + 1].published.seconds / measured[i].published.seconds);
    pairs.sides.push_back(second.backend + " / " + first.backend);
  }
}

/// AGREES: every neighbour is surely slower than the one before it; DIFFERS: one is surely faster.
void tell_verdicts(const Pairs& pairs, Table& table) {
  const auto verdicts = judge_by_run(pairs.runs, pairs.ratios);
  std::vector<bool> agrees(table.rows.size(), true);
  std::vector<std::vector<std::string>> contradictions(table.rows.size());
  std::vector<double> deviations(table.rows.size(), 1);
  std::vector<std::string> deviating(table.rows.size());
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i] != Verdict::slower) agrees[pairs.rows[i]] = false;
    if (verdicts[i] == Verdict::faster) contradictions[pairs.rows[i]].push_back(pairs.names[i]);
    double& furthest = deviations[pairs.rows[i]];
    const double deviation = pairs.ratios[i].value / pairs.published[i];
    const bool further = std::abs(std::log(deviation)) > std::abs(std::log(furthest));
    if (further || deviating[pairs.rows[i]].empty()) {
      furthest = deviation;
      deviating[pairs.rows[i]] = pairs.sides[i];
    }
  }
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const bool differs = !contradictions[row].empty();
    table.rows[row].emplace_back(std::string(differs       ? "DIFFERS"
                                             : agrees[row] ? "AGREES"
                                                           : "UNCLEAR"));
    table.rows[row].push_back(or_null(join(contradictions[row], ", ")));
    table.rows[row].emplace_back(deviations[row]);
    table.rows[row].push_back(or_null(deviating[row]));
  }
}

/// The model that the container study trained.
constexpr TrainingModel kStudiedModel = TrainingModel::resnet18;

/// The study's whole trainings of one architecture, as an order of backends.
PublishedRanking training_ranking(const std::string& architecture) {
  PublishedRanking ranking;
  ranking.collective = name_of(Collective::training);
  ranking.where = fmt::format("whole training of {}", name_of(kStudiedModel));
  for (const auto& row : published_figures().training_times)
    if (row.architecture == architecture)
      ranking.fastest_first.push_back({row.backend, row.bare_metal_s});
  std::stable_sort(ranking.fastest_first.begin(), ranking.fastest_first.end(),
                   [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return ranking;
}

/// What was published of such cells: of training steps, of whatever model, the order of whole
/// trainings of the study's, as equal numbers of equal steps make them.
std::vector<PublishedRanking> rankings_of_cell(const CellFigure& cell) {
  if (cell.collective == name_of(Collective::training)) {
    if (!trained_as_one(cell)) return {};
    return {training_ranking(cell.architecture)};
  }
  std::vector<PublishedRanking> found;
  for (const auto& ranking : published_figures().rankings)
    if (ranking.collective == cell.collective) found.push_back(ranking);
  return found;
}

/// Cells on bare metal, each with its backends, in the order of their first figure.
std::vector<Backends> cells_on_bare_metal(const std::vector<CellFigure>& figures) {
  std::vector<Backends> cells;
  std::map<std::string, std::size_t> place;
  for (const auto& figure : figures) {
    if (figure.environment != name_of(EnvironmentKind::bare_metal)) continue;
    const auto [found, is_new] = place.emplace(key_without(figure, "backend"), cells.size());
    if (is_new) cells.emplace_back();
    cells[found->second].emplace(figure.backend, &figure);
  }
  return cells;
}

Table rankings_table(const std::vector<CellFigure>& given, const QueryScope&) {
  Table table;
  const auto figures = with_stated_memory(given);
  Pairs pairs;
  for (const auto& backends : cells_on_bare_metal(figures)) {
    const CellFigure& any = *backends.begin()->second;
    for (const auto& ranking : rankings_of_cell(any)) {
      const auto measured = measured_of(ranking, backends);
      if (measured.size() < 2) continue;
      add_pairs(measured, table.rows.size(), pairs);
      table.rows.push_back({any.run_id, any.collective, any.architecture, any.algorithm,
                            any.size_bytes, any.ranks, any.datatype, any.in_place, any.cell_knobs,
                            published_order(ranking), ranking.where, measured_order(measured)});
    }
  }
  tell_verdicts(pairs, table);
  return table;
}

}  // namespace

Query rankings_query() {
  return {.title = "Published rankings",
          .row =
              "one cell on bare metal: the published order of backends, the order here, and "
              "whether they surely agree or differ; of training steps, of any model, the order of "
              "the study's whole trainings",
          .columns = R"(
run_id collective architecture algorithm size_bytes ranks datatype in_place cell_knobs
published | text | the published order, the fastest first
published_in | text | where: harness of the study, and of trainings the model
measured | text | the order here
ranking | text | AGREES (each is surely slower than the one published before it), DIFFERS (one is surely faster), else UNCLEAR
surely_other | text, told | pairs of which the published slower one is surely faster here
deviation | real | of neighbours in the published order: times here, the second's over the first's, over the published ones; the one furthest from 1
deviation_of | text, told | the second and the first of that pair
)",
          .method = verdict_method(),
          .needs = "backends on bare metal that a study ranks, of the same cell",
          .of_figures = rankings_table,
          .of_all_cells = true};
}

}  // namespace dynamiccl
