#pragma once

#include <span>
#include <string_view>

#include "core/vocabulary/json.hpp"
#include "profiles/detect/probes/live_system.hpp"
#include "profiles/detect/probes/probe_root.hpp"

namespace dynamiccl {

/// What a user says about the surroundings that no probe can see; always marked as declared.
struct Declarations {
  std::string aggregation;  ///< in-network aggregation, e.g. "sharp" or "switchml"
  std::string topology;     ///< fabric, e.g. "fat-tree"
  std::string setting;      ///< "datacenter", "edge" or "federated"
};

/// What a probe reads from.
struct ProbeContext {
  const ProbeRoot& root;
  const LiveSystem& live;
  const Declarations& declared;
};

/// One probe: a file of its own and a row in the table.
struct Probe {
  std::string_view name;  ///< its key in the facts
  nlohmann::json (*run)(const ProbeContext&);
  bool of_host;  ///< also part of the machine's own facts, not of the process alone
};

std::span<const Probe> all_probes();

/// Runs every probe (or those of the host only): {"schema": 1, NAME: {...}, ...}. A probe that
/// throws is recorded under its name, and the others go on. Blocking: no. Cost: below 30 ms.
nlohmann::json run_probes(const ProbeContext& context, bool host_only = false);

nlohmann::json probe_system(const ProbeContext& context);
nlohmann::json probe_process(const ProbeContext& context);
nlohmann::json probe_namespaces(const ProbeContext& context);
nlohmann::json probe_container(const ProbeContext& context);
nlohmann::json probe_cgroup(const ProbeContext& context);
nlohmann::json probe_shared_memory(const ProbeContext& context);
nlohmann::json probe_cma(const ProbeContext& context);
nlohmann::json probe_cpu(const ProbeContext& context);
nlohmann::json probe_memory(const ProbeContext& context);
nlohmann::json probe_network(const ProbeContext& context);
nlohmann::json probe_rdma(const ProbeContext& context);
nlohmann::json probe_gpu(const ProbeContext& context);
nlohmann::json probe_aggregation(const ProbeContext& context);
nlohmann::json probe_libraries(const ProbeContext& context);
nlohmann::json probe_environment(const ProbeContext& context);

}  // namespace dynamiccl
