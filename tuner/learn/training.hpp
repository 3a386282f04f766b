#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "tuner/learn/trainer.hpp"

namespace dynamiccl {

struct TrainingOptions {
  int updates = 40;      ///< per curriculum stage
  int jobs = 48;         ///< searches of an update
  int held_out = 64;     ///< places per stage: half as many watch and validate
  int columns = 0;       ///< of the state that the policy sees; 0: all
  unsigned threads = 1;  ///< that search side by side
  nlohmann::json provenance = nlohmann::json::object();  ///< what the policy's file says besides
};

/// What the updates since the row before did.
struct TrainingRow {
  int stage = 1;
  std::int64_t steps = 0;   ///< decisions since the training began
  double final_regret = 0;  ///< of searches at their end, mean over the updates
  ContextEffect context;    ///< on places that never train
  PpoReport report;         ///< of the last update
};

struct Trained {
  Policy policy;
  std::vector<TrainingRow> curve;
  double validation = 0;  ///< mean regret on places that never train
};

/// @param each of every curriculum stage
std::vector<SimPlace> draw_places(const SimCatalog& catalog, int each, std::uint64_t seed);

/// Agents that act by it.
AgentMaker policy_maker(const Policy& policy);

/// One training through the three curriculum stages. The curve has a row after every fifth update
/// and after the last one of a stage.
/// @param keep is handed the policy so far with each row
Trained train(const SimCatalog& catalog, const TrainingOptions& options, int seed,
              const std::function<void(const Policy&)>& keep);

}  // namespace dynamiccl
