#include "reports/model/synchronisation_modes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/group_tiers.hpp"
#include "reports/model/published.hpp"

namespace dynamiccl {
namespace {

constexpr int kFarthestTier = 4;

/// What way of waiting stands behind a name of ours; "" where the surveys have none.
std::string short_mode(const std::string& synchronisation) {
  if (synchronisation == "bsp") return "BSP";
  if (synchronisation == "ssp") return "SSP";
  if (synchronisation == "asp") return "ASP";
  for (const char* local : {"local", "post-local", "adacomm", "easgd"})
    if (synchronisation == local) return "LSGD";
  return "";
}

std::string order_of(const SynchronisationMode& mode, const std::string& sync,
                     const std::string& compression) {
  if (mode.place == "gossip") return compression == "none" ? "Gossip-SGD" : "CHOCO-SGD";
  if (sync == "BSP") {
    if (compression == "none") return "BSP-SGD";
    if (compression == "qsgd") return "QSGD";
    if (compression == "ef-sign") return "EF-SignSGD";
    return compression == "topk" ? "Top-k" : "";
  }
  if (compression != "none") return "";
  return sync == "SSP" ? "SSP-SGD" : sync == "ASP" ? "ASP-SGD" : sync == "LSGD" ? "Local-SGD" : "";
}

template <class Row>
const Row* row_named(const std::vector<Row>& rows, std::string Row::*name,
                     const std::string& wanted) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.*name == wanted; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

SynchronisationMode synchronisation_mode(const std::string& architecture,
                                         const std::string& synchronisation,
                                         const std::string& compression) {
  SynchronisationMode mode;
  const bool gossip = synchronisation.starts_with("gossip ");
  const bool grouped = synchronisation.starts_with("grouped ");
  const auto blank = synchronisation.find(' ');
  const std::string own = gossip || grouped ? synchronisation.substr(blank + 1) : synchronisation;
  // One that goes over while it trains is none of theirs.
  const std::string sync = short_mode(own);
  mode.place = gossip ? "gossip" : architecture == "ps" ? "PS" : "AR";
  if (!sync.empty() && !grouped) mode.profile = mode.place + " " + sync;
  if (!gossip && !grouped) mode.tradeoff = sync == "LSGD" ? "Local-SGD" : sync;
  if (gossip) {
    mode.by_tier = "decentralised";
  } else if (grouped) {
    mode.by_tier = "hybrid";
  } else {
    mode.by_tier = sync == "BSP"    ? "BSP"
                   : sync == "SSP"  ? "stale-sync"
                   : sync == "ASP"  ? "async"
                   : sync == "LSGD" ? "local-sgd"
                                    : "";
  }
  if (!sync.empty() && !grouped) mode.order = order_of(mode, sync, compression);
  return mode;
}

const PublishedWaiting* published_waiting(const std::string& mode) {
  return row_named(training_studies().waiting, &PublishedWaiting::mode, mode);
}

const PublishedByTier* published_by_tier(const std::string& mode) {
  return row_named(training_studies().waiting_by_tier, &PublishedByTier::mode, mode);
}

const PublishedOrder* published_order_of(const std::string& method) {
  return row_named(training_studies().convergence, &PublishedOrder::method, method);
}

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
  const PublishedByTier* bsp = published_by_tier("BSP");
  const TrainingStudies& studies = training_studies();
  std::vector<std::string> warnings;
  for (const std::string& place : places)
    warnings.push_back(fmt::format(
        "tier 4: {}: its links are slower than 25 Gb/s, where the survey calls synchronous steps "
        "with plain gradients {}; it names {} (with {} steps between averages). Here: "
        "synchronisation = \"local\", compression; query time_to_target ranks what was measured",
        place, bsp == nullptr ? "" : bsp->label[kFarthestTier - 1],
        join(studies.tier4_options, ", "), studies.tier4_local_steps));
  return warnings;
}

}  // namespace dynamiccl
