#include "profiles/detect/facts.hpp"

#include <cstdlib>

#include "core/vocabulary/parsed_json.hpp"
#include "profiles/detect/probes/nvml.hpp"

namespace dynamiccl {
namespace {

/// Whatever else stands in the variable is left out.
void add_declared(const char* text, nlohmann::json& facts) {
  const auto all = json_or_discarded(text);
  if (!all.is_object() || !facts.is_object()) return;
  for (const char* name : {"topology", "deployment", "aggregation"})
    if (const auto value = all.find(name); value != all.end() && value->is_string())
      facts["declared"][name] = *value;
}

}  // namespace

nlohmann::json probe_facts(const ProbeOptions& options) {
  const ProbeRoot root;
  const auto live = make_live_system(options.nvml ? read_gpus_by_nvml : nullptr);
  nlohmann::json facts = run_probes({root, *live, options.declared});
  if (const char* declared = std::getenv(kDeclaredVariable)) add_declared(declared, facts);
  return facts;
}

nlohmann::json probe_host() {
  const ProbeRoot root;
  const auto live = make_live_system(read_gpus_by_nvml);
  const Declarations nothing_declared;
  return run_probes({root, *live, nothing_declared}, true);
}

}  // namespace dynamiccl
