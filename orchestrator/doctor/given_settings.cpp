#include "orchestrator/doctor/given_settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "profiles/detect/fact_access.hpp"

namespace dynamiccl {
namespace {

/// A parameter of Open MPI's, not a variable: these are written in small letters.
bool is_parameter(std::string_view name) {
  return !name.empty() && name.front() >= 'a' && name.front() <= 'z';
}

/// As a variable of the ranks' environment.
std::string variable_of(std::string_view name) {
  return (is_parameter(name) ? "OMPI_MCA_" : "") + std::string(name);
}

/// Who gave what the launcher gets, with the reason that stands there.
std::string origin_of(const EnvironmentProfile& profile, Backend backend, std::string_view name) {
  const std::string variable = variable_of(name);
  const auto settings = profile.backend_settings.find(backend);
  if (settings != profile.backend_settings.end())
    for (const auto& setting : settings->second)
      if (setting.name == name || setting.name == variable)
        return fmt::format("profile {}, [[backend.{}]]{}", profile.name, name_of(backend),
                           setting.reason.empty() ? "" : ": \"" + setting.reason + "\"");
  if (profile.environment.contains(variable))
    return fmt::format("profile {}, its environment", profile.name);
  return "the launcher";
}

std::optional<GivenSetting> told(const Symptoms& symptoms, const BackendLook& look,
                                 std::string_view name) {
  const auto given = [&](const std::map<std::string, std::string>& settings,
                         const std::string& key) -> std::optional<GivenSetting> {
    const auto found = settings.find(key);
    if (found == settings.end()) return std::nullopt;
    return GivenSetting{&look, std::string(name), found->second,
                        origin_of(symptoms.profile, look.backend, name), ""};
  };
  if (is_parameter(name))
    if (auto parameter = given(look.mca, std::string(name))) return parameter;
  return given(look.environment, variable_of(name));
}

}  // namespace

std::optional<GivenSetting> given_setting(const Symptoms& symptoms, const BackendLook& look,
                                          std::string_view name) {
  // Each library heeds its own.
  if (is_parameter(name) && !backend_facts(look.backend).mca) return std::nullopt;
  if (auto setting = told(symptoms, look, name)) return setting;
  const std::string variable = variable_of(name);
  for (const auto& facts : look.facts.empty() ? symptoms.facts : look.facts) {
    const nlohmann::json& variables = fact(facts, "environment", "variables");
    if (!variables.is_object()) continue;
    if (const auto one = variables.find(variable); one != variables.end() && one->is_string())
      return GivenSetting{&look, std::string(name), one->get<std::string>(),
                          fmt::format("{} in the environment that the ranks inherit", variable),
                          "unset " + variable};
  }
  for (const auto& facts : look.facts.empty() ? symptoms.facts : look.facts) {
    const nlohmann::json& filed = fact(facts, "environment", "files");
    if (!filed.is_object() || !filed.contains(variable)) continue;
    const std::string file = filed.at(variable).value("file", "");
    return GivenSetting{&look, std::string(name), filed.at(variable).value("value", ""), file,
                        fmt::format("without {} in {}", name, file)};
  }
  return std::nullopt;
}

Fix without_settings(const EnvironmentProfile& profile, const std::vector<GivenSetting>& given) {
  EnvironmentProfile without = profile;
  std::vector<std::string> flags;
  bool outside = false;
  for (const GivenSetting& one : given) {
    const Backend backend = one.look->backend;
    outside = outside || !one.removal.empty();
    flags.push_back(one.removal.empty()
                        ? fmt::format("without {} (backend.{})", one.name, name_of(backend))
                        : one.removal);
    drop_setting(without, backend, SettingScope::mca, one.name);
    drop_setting(without, backend, SettingScope::env, variable_of(one.name));
    without.environment.erase(variable_of(one.name));
  }
  // One variable may be in the way of several libraries.
  std::sort(flags.begin(), flags.end());
  flags.erase(std::unique(flags.begin(), flags.end()), flags.end());
  // No profile takes away what ranks inherit.
  if (outside) return {join(flags, ", "), std::nullopt};
  return {join(flags, ", "), std::move(without)};
}

}  // namespace dynamiccl
