#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "profiles/published/training_studies.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// A synchronisation mode in the surveys' words; "" where they have none for it.
struct SynchronisationMode {
  std::string place;     ///< of the sum: "PS", "AR", "gossip"
  std::string profile;   ///< of the four properties: "PS BSP", "AR LSGD"
  std::string tradeoff;  ///< "BSP", "SSP", "ASP", "Local-SGD"
  std::string by_tier;   ///< "BSP", "stale-sync", "async", "local-sgd", "decentralised", "hybrid"
  std::string order;     ///< method of the table of convergence
};

/// @param architecture "ps" or "ring"
/// @param synchronisation as v_training has it: "bsp", "gossip local", "grouped ssp"
/// @param compression codec by name
SynchronisationMode synchronisation_mode(const std::string& architecture,
                                         const std::string& synchronisation,
                                         const std::string& compression);

const PublishedWaiting* published_waiting(const std::string& mode);
const PublishedByTier* published_by_tier(const std::string& mode);
const PublishedOrder* published_order_of(const std::string& method);

/// What is known to be a bad choice: plain synchronous steps with gradients as they are over links
/// of tier 4. One sentence per environment, model and batch; empty where none is.
/// @param figures of the run
std::vector<std::string> synchronisation_warnings(const Reader& reader, std::int64_t run_row,
                                                  const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
