#pragma once

#include "core/vocabulary/json.hpp"
#include "profiles/detect/probes/probe_root.hpp"

namespace dynamiccl {

/// Counters of disturbance now: pressure (PSI), load, steal, context switches, throttling.
nlohmann::json probe_noise();
nlohmann::json probe_noise(const ProbeRoot& root);

/// What happened between two probe_noise() readings: {"seconds", "steal_share", "busy_share",
/// "context_switches_per_s", "throttled_periods", "psi_cpu_share", ...}; null with a reason where
/// either reading lacks a counter.
nlohmann::json noise_between(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace dynamiccl
