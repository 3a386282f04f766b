#include "reports/model/waits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {

std::string waits_of(const std::vector<CellFigure>& figures) {
  constexpr double kWorthTelling = 0.01;
  constexpr std::size_t kMostTold = 4;  // environments
  std::map<std::pair<std::size_t, std::string>, std::vector<double>> shares;
  for (const auto& figure : figures)
    if (const auto share = figure.waited_share())
      shares[environment_order(figure.environment)].push_back(*share);
  std::vector<std::string> told;
  double most = 0;
  for (const auto& [place, of_cells] : shares) {
    const double share = median(of_cells);
    most = std::max(most, share);
    told.push_back(fmt::format("{:.0f} %{} in {}", 100 * share, told.empty() ? " of the time" : "",
                               place.second));
  }
  if (most < kWorthTelling) return "";
  if (told.size() <= kMostTold) return join(told, ", ");
  return fmt::format("{}, up to {:.0f} % in others", told.front(), 100 * most);
}

std::string busy_machine(const std::vector<CellFigure>& figures, const std::vector<Ratio>& ratios,
                         const std::vector<Verdict>& verdicts) {
  const bool waited = std::ranges::any_of(figures, [](const CellFigure& figure) {
    return std::ranges::any_of(figure.launches,
                               [](const LaunchFigure& launch) { return launch.share_at_work < 1; });
  });
  const std::string waits = waited ? waits_of(figures) : "";
  if (waits.empty()) return "";
  std::string text = "busy machine: ranks waited for a core " + waits;
  const auto open = std::ranges::count(verdicts, Verdict::not_judged);
  if (open > 0)
    text += fmt::format("; {} NOT JUDGED, as that may explain {}",
                        counted_of(open, ratios.size(), "ratio"), open == 1 ? "it" : "them");
  return text + "; give the run cores of its own, or let it begin with --wait-quiet 10m";
}

}  // namespace dynamiccl
