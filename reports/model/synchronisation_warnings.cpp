#include "reports/model/synchronisation_warnings.hpp"

#include <fmt/format.h>

#include <map>
#include <set>

#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/group_tiers.hpp"
#include "reports/model/published.hpp"

namespace dynamiccl {
namespace {

constexpr int kFarthestTier = 4;

}  // namespace

std::vector<std::string> synchronisation_warnings(const Reader& reader, std::int64_t run_row,
                                                  const std::vector<CellFigure>& figures) {
  std::set<std::string> places;
  std::map<std::string, int> tiers;
  for (const CellFigure& figure : figures) {
    if (figure.collective != "training" || !trained_as_one(figure)) continue;
    const TrainedCell cell = trained_cell(figure);
    if (cell.workers < 2) continue;
    if (tiers.empty()) tiers = tiers_of_environments(reader, run_row);
    const auto tier = tiers.find(figure.environment);
    if (tier == tiers.end() || tier->second < kFarthestTier) continue;
    places.insert(fmt::format("{}, {}, batch {}", figure.environment, cell.model, cell.batch));
  }
  const nlohmann::json& survey = published_figures().at("s002");
  std::vector<std::string> warnings;
  for (const std::string& place : places)
    warnings.push_back(fmt::format(
        "tier 4: {}: its links are slower than 25 Gb/s, where the survey calls synchronous steps "
        "with plain gradients infeasible; it names {} (with {} steps between averages). Here: "
        "synchronisation = \"local\", compression; query time_to_target ranks what was measured",
        place,
        join(survey.at("decision_matrix").at("tier4_options").get<std::vector<std::string>>(),
             ", "),
        survey.at("llm_other").at("local_sgd_tau_tier4").get<int>()));
  return warnings;
}

}  // namespace dynamiccl
