// Causes that leave the ranks too little of the processors.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "profiles/detect/binding_check.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

std::vector<Backend> all_that_ran(const Symptoms& symptoms) {
  std::vector<Backend> backends;
  for (const auto& look : symptoms.looks)
    if (look.ran()) backends.push_back(look.backend);
  return backends;
}

std::vector<FactsRecord> records_of(const std::vector<json>& facts) {
  std::vector<FactsRecord> records;
  records.reserve(facts.size());
  for (std::size_t rank = 0; rank < facts.size(); ++rank)
    records.push_back({static_cast<int>(rank), facts[rank]});
  return records;
}

/// CPUs that the ranks may run on, all together.
std::size_t usable_cpus(const std::vector<json>& facts) {
  std::set<int> cpus;
  for (const json& rank : facts) {
    const json& affinity = fact(rank, "process", "affinity");
    if (!affinity.is_array()) continue;
    for (const json& cpu : affinity)
      if (const auto number = whole_number<int>(cpu)) cpus.insert(*number);
  }
  return cpus.size();
}

}  // namespace

std::optional<Symptom> look_for_shared_core(const Symptoms& symptoms) {
  Symptom symptom;
  for (const auto& look : symptoms.looks) {
    // A launch that failed for its binding has left its facts.
    const auto defects = binding_defects(symptoms.host, records_of(look.facts));
    if (defects.empty()) continue;
    symptom.backends.push_back(look.backend);
    const auto& text = defects.front();
    symptom.evidence = text.substr(0, text.find("; start Open MPI"));
  }
  if (symptom.backends.empty()) return std::nullopt;
  return symptom;
}

Fix fix_shared_core(const Symptoms& symptoms) {
  EnvironmentProfile profile = symptoms.profile;
  std::vector<std::string> flags;
  if (!profile.cpus.empty()) {
    flags.emplace_back("without --cpuset-cpus (cpus = \"\")");
    profile.cpus.clear();
  }
  for (const BackendFacts& facts : kBackendFacts)
    if (facts.mca)
      drop_setting(profile, facts.backend, SettingScope::mca, "hwloc_base_binding_policy");
  if (flags.empty()) flags.emplace_back("mpirun --bind-to none");
  return {join(flags, ", "), std::move(profile)};
}

std::optional<Symptom> look_for_cpu_quota(const Symptoms& symptoms) {
  for (const json& facts : symptoms.facts) {
    const json& limit = fact(facts, "cgroup", "cpu_limit_cores");
    if (!limit.is_number()) continue;
    const int together = symptoms.profile.ranks_per_container > 0
                             ? std::min(symptoms.profile.ranks_per_container, symptoms.ranks)
                             : symptoms.ranks;
    if (limit.get<double>() >= together) continue;
    const auto throttled =
        whole_number<std::uint64_t>(fact(facts, "cgroup", "nr_throttled")).value_or(0);
    return Symptom{
        fmt::format(
            "the cgroup may take {:g} cores for {} rank{}{}", limit.get<double>(), together,
            together == 1 ? "" : "s",
            throttled > 0 ? fmt::format(" and was throttled in {} periods", throttled) : ""),
        all_that_ran(symptoms)};
  }
  return std::nullopt;
}

Fix fix_cpu_quota(const Symptoms& symptoms) {
  if (!symptoms.profile.cpu_limit)
    return {"raise the CPU quota of the surrounding cgroup (cpu.max)", std::nullopt};
  EnvironmentProfile profile = symptoms.profile;
  profile.cpu_limit.reset();
  return {"without --cpus (cpu_limit), or a whole core per rank", std::move(profile)};
}

std::optional<Symptom> look_for_oversubscription(const Symptoms& symptoms) {
  const std::size_t cpus = usable_cpus(symptoms.facts);
  if (cpus == 0 || static_cast<std::size_t>(symptoms.ranks) <= cpus) return std::nullopt;
  if (look_for_shared_core(symptoms)) return std::nullopt;  // they share by binding, not by number
  return Symptom{fmt::format("{} ranks on {} CPUs: they wait for each other's time slices",
                             symptoms.ranks, cpus),
                 all_that_ran(symptoms)};
}

Fix fix_oversubscription(const Symptoms& symptoms) {
  return {fmt::format("at most {} ranks here", usable_cpus(symptoms.facts)), std::nullopt};
}

std::optional<Symptom> look_for_reference_blas(const Symptoms& symptoms) {
  for (const json& facts : symptoms.facts)
    if (fact_text(facts, "libraries", "blas") == "reference")
      return Symptom{
          "libblas.so.3 is the reference implementation: it slows the computation between the "
          "collectives, not the collectives",
          {}};
  return std::nullopt;
}

Fix fix_reference_blas(const Symptoms& /*symptoms*/) {
  return {"apt-get install libopenblas0-pthread", std::nullopt};
}

}  // namespace dynamiccl
