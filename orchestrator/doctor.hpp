#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "orchestrator/console.hpp"
#include "profiles/detect/regime.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// What one environment turned out to be.
struct Diagnosis {
  std::string environment;
  std::string unavailable;  ///< why it cannot run here, with the command that mends it; "" = it ran
  std::vector<nlohmann::json> facts;  ///< of each rank
  Regime regime;
  std::vector<std::string> problems;  ///< promises of the profile that do not hold, failed probes

  [[nodiscard]] bool healthy() const { return unavailable.empty() && problems.empty(); }
};

/// Starts the environment, runs dynamiccl-probe as each rank in it and stops it again. Never throws
/// for what the environment does: that is a diagnosis.
/// @param folder holds dynamiccl-probe
/// @param host probe_host()
Diagnosis diagnose(const EnvironmentProfile& profile, int ranks, const std::string& folder,
                   const nlohmann::json& host);

}  // namespace dynamiccl
