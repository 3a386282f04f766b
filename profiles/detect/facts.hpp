#pragma once

#include "core/vocabulary/json.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {

/// What a process tells the probes: declarations of [machine], and whether to ask for GPUs.
struct ProbeOptions {
  Declarations declared;
  bool nvml = true;  ///< false saves its start-up (tens of milliseconds) where no GPU is used
};

/// Variable that hands [machine]'s declarations on to processes that name their regime themselves:
/// a JSON object with "topology", "deployment" and "aggregation", of which probe_facts() keeps the
/// texts under "declared".
inline constexpr const char* kDeclaredVariable = "DYNAMICCL_DECLARED";

/// What this process sees of its surroundings: FactsRecord::facts. Ranks: all. Never throws for
/// what the machine holds; call it after the library is initialised, so that what it loaded shows.
nlohmann::json probe_facts(const ProbeOptions& options = {});

/// The machine as the orchestrator sees it: RunInfo::host_json and the host's side of
/// check_promise(). No environment variables.
nlohmann::json probe_host();

}  // namespace dynamiccl
