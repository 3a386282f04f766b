#include "profiles/detect/facts.hpp"

#include "profiles/detect/probes/nvml.hpp"

namespace dynamiccl {

nlohmann::json probe_facts(const ProbeOptions& options) {
  const ProbeRoot root;
  const auto live = make_live_system(options.nvml ? read_gpus_by_nvml : nullptr);
  return run_probes({root, *live, options.declared});
}

nlohmann::json probe_host() {
  const ProbeRoot root;
  const auto live = make_live_system(read_gpus_by_nvml);
  const Declarations nothing_declared;
  return run_probes({root, *live, nothing_declared}, true);
}

}  // namespace dynamiccl
