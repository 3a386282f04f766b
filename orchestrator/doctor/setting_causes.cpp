// Settings that keep a library off a way that the environment allows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

/// From the fastest way to the slowest.
constexpr std::array<std::string_view, 3> kWays{"cma", "shm", "tcp"};

/// Settings that name the ways a library may take: Open MPI's parameters and UCX's variable.
constexpr std::array kWaySettings{"btl", "btl_vader_single_copy_mechanism", "UCX_TLS"};

std::size_t speed_place(const std::string& way) {
  return static_cast<std::size_t>(std::find(kWays.begin(), kWays.end(), way) - kWays.begin());
}

struct Forced {
  const BackendLook* look = nullptr;
  std::string name;
  std::string value;
  std::string without;  ///< the way that is open without it
  std::string
      inherited;  ///< the variable that brought it from outside; "": profile or launcher did
};

/// As a variable of the ranks' environment.
std::string variable_of(const std::string& name) {
  return name.starts_with("btl") ? "OMPI_MCA_" + name : name;
}

/// What the ranks inherited, by the setting's own name. A launcher's or profile's comes first.
std::map<std::string, std::string> inherited_settings(const Symptoms& symptoms,
                                                      const BackendLook& look) {
  std::map<std::string, std::string> found;
  for (const auto& facts : look.facts.empty() ? symptoms.facts : look.facts) {
    const nlohmann::json& variables = fact(facts, "environment", "variables");
    if (!variables.is_object()) continue;
    for (const char* name : kWaySettings) {
      // Each library heeds its own.
      if ((variable_of(name) != name) != backend_facts(look.backend).mca) continue;
      if (const auto one = variables.find(variable_of(name));
          one != variables.end() && one->is_string() && !look.environment.contains(name) &&
          !look.environment.contains(variable_of(name)) && !look.mca.contains(name))
        found.emplace(name, one->get<std::string>());
    }
  }
  return found;
}

std::vector<Forced> forced_ways(const Symptoms& symptoms) {
  std::vector<Forced> found;
  for (const auto& look : symptoms.looks) {
    if (!is_host_mpi(look.backend) || !look.impossible.empty()) continue;
    auto settings = look.environment;
    settings.insert(look.mca.begin(), look.mca.end());
    const auto inherited = inherited_settings(symptoms, look);
    settings.insert(inherited.begin(), inherited.end());
    const auto now = asked_transport(symptoms.profile, look.backend, settings, look.many_hosts);
    for (const char* name : kWaySettings) {
      auto without = settings;
      const auto set = without.extract(name);
      if (set.empty()) continue;
      const auto way = asked_transport(symptoms.profile, look.backend, without, look.many_hosts);
      if (speed_place(way) < speed_place(now))
        found.push_back({&look, name, set.mapped(), way,
                         inherited.contains(name) ? variable_of(name) : std::string()});
    }
  }
  return found;
}

SettingScope scope_of(const Forced& forced) {
  return forced.look->mca.contains(forced.name) ? SettingScope::mca : SettingScope::env;
}

/// Who gave a setting, with the reason that stands there.
std::string origin_of(const EnvironmentProfile& profile, const Forced& forced) {
  if (!forced.inherited.empty())
    return fmt::format("{} in the environment that the ranks inherit", forced.inherited);
  const auto settings = profile.backend_settings.find(forced.look->backend);
  if (settings != profile.backend_settings.end())
    for (const auto& setting : settings->second)
      if (setting.scope == scope_of(forced) && setting.name == forced.name)
        return fmt::format("profile {}, [[backend.{}]]{}", profile.name,
                           name_of(forced.look->backend),
                           setting.reason.empty() ? "" : ": \"" + setting.reason + "\"");
  if (profile.environment.contains(forced.name))
    return fmt::format("profile {}, its environment", profile.name);
  return "the launcher";
}

}  // namespace

std::optional<Symptom> look_for_slow_setting(const Symptoms& symptoms) {
  const auto forced = forced_ways(symptoms);
  if (forced.empty()) return std::nullopt;
  Symptom symptom;
  std::vector<std::string> seen;
  for (const auto& one : forced) {
    symptom.backends.push_back(one.look->backend);
    seen.push_back(fmt::format("{}: {} = {} ({}) forbids {}", name_of(one.look->backend), one.name,
                               one.value, origin_of(symptoms.profile, one), one.without));
  }
  symptom.evidence = join(seen, "; ");
  return symptom;
}

Fix fix_slow_setting(const Symptoms& symptoms) {
  EnvironmentProfile profile = symptoms.profile;
  std::vector<std::string> flags;
  bool outside = false;
  for (const auto& one : forced_ways(symptoms)) {
    if (!one.inherited.empty()) {
      outside = true;
      flags.push_back(fmt::format("unset {}", one.inherited));
      continue;
    }
    drop_setting(profile, one.look->backend, scope_of(one), one.name);
    profile.environment.erase(one.name);
    flags.push_back(fmt::format("without {} (backend.{})", one.name, name_of(one.look->backend)));
  }
  // One variable may slow several libraries.
  std::sort(flags.begin(), flags.end());
  flags.erase(std::unique(flags.begin(), flags.end()), flags.end());
  // No profile takes away what ranks inherit.
  if (outside) return {join(flags, ", "), std::nullopt};
  return {join(flags, ", "), std::move(profile)};
}

}  // namespace dynamiccl
