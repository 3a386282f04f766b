#include "reports/model/fits.hpp"
#include "reports/page/section.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

void add_range(json& object, const char* low, const char* high,
               const std::optional<Interval>& interval) {
  object[low] = interval ? rounded(interval->low) : json();
  object[high] = interval ? rounded(interval->high) : json();
}

json line_json(const FittedLine& line) {
  json object{{"from", line.from.count()},
              {"to", line.to.count()},
              {"blocks", line.blocks},
              {"alpha_us", rounded(line.fit.alpha.count())},
              {"bytes_per_s", rounded(line.bytes_per_s)},
              {"error", line.error ? rounded(*line.error) : json()},
              {"mixed_cadences", line.cadences.size() > 1}};
  add_range(object, "alpha_low_us", "alpha_high_us", line.alpha_us);
  add_range(object, "low_bytes_per_s", "high_bytes_per_s", line.bytes_per_s_range);
  return object;
}

}  // namespace

// A curve is named by its first cell's place in the list of cells: the page knows the rest.
json latency_data(const PageContext& page) {
  json fits = json::array();
  for (const auto& curve : fit_curves(page.figures)) {
    // Two sizes always lie on a line: that is no fit.
    if (curve.lines.front().sizes < 3) continue;
    // The one line stands first; where pieces follow it does not do.
    const std::size_t first = curve.lines.size() > 1 ? 1 : 0;
    json pieces = json::array();
    for (std::size_t i = first; i < curve.lines.size(); ++i)
      pieces.push_back(line_json(curve.lines[i]));
    const auto& regimes = curve.example.regimes;
    fits.push_back({{"cell", curve.place},
                    {"regime", regimes.empty() ? "" : *regimes.begin()},
                    {"pieces", std::move(pieces)}});
  }
  return {{"fits", std::move(fits)}};
}

}  // namespace dynamiccl
