#include "embedded/reference_figures.hpp"
#include "profiles/published/reference.hpp"
#include "reports/model/published.hpp"
#include "reports/page/section.hpp"

namespace dynamiccl {

// The page sets these beside its own cells; whether one of them is near enough to be compared is
// decided where it is drawn, because the reader may have chosen other cells.
nlohmann::json reference_data(const PageContext&) {
  using nlohmann::json;
  const ReferenceFigures& figures = published_figures();
  json ratios = json::array();
  for (const auto& ratio : figures.ratios) {
    ratios.push_back({{"backend", ratio.backend},
                      {"architecture", ratio.architecture},
                      {"collective", ratio.collective},
                      {"environment", ratio.environment},
                      {"ratio", rounded(ratio.ratio)},
                      {"where", ratio.where}});
  }
  json extremes = json::array();
  for (const auto& extreme : figures.extremes) {
    extremes.push_back({{"architecture", extreme.architecture},
                        {"collective", extreme.collective},
                        {"backend", extreme.backend},
                        {"environment", extreme.environment},
                        {"seconds", extreme.seconds},
                        {"best", extreme.is_best}});
  }
  json shares = json::array();
  for (const auto& share : figures.copy_shares) {
    shares.push_back({{"backend", share.backend},
                      {"architecture", share.architecture},
                      {"collective", share.collective},
                      {"percent", share.percent}});
  }
  return {{"testbed", figures.testbed},
          {"ratios", ratios},
          {"extremes", extremes},
          {"extremes_note", figures.extremes_note},
          {"copy_shares", shares}};
}

}  // namespace dynamiccl
