#include <fmt/format.h>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {
namespace {

/// A JSON string is a TOML basic string.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string list(const std::vector<std::string>& items) {
  return items.empty() ? "[]" : fmt::format("[\n  {},\n]", join(items, ",\n  "));
}

std::string capabilities(const EnvironmentProfile& profile) {
  std::vector<std::string> items;
  for (const auto& capability : profile.capabilities)
    items.push_back(fmt::format("{{ name = {}, reason = {} }}", quoted(capability.name),
                                quoted(capability.reason)));
  return list(items);
}

std::string texts(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const auto& value : values) items.push_back(quoted(value));
  return fmt::format("[{}]", join(items, ", "));
}

void add_settings(const EnvironmentProfile& profile, std::string& text) {
  for (const auto& [backend, settings] : profile.backend_settings) {
    std::vector<std::string> items;
    for (const auto& setting : settings)
      items.push_back(fmt::format("{{ name = {}, value = {}, reason = {} }}",
                                  quoted(profile_text(setting.scope, setting.name)),
                                  quoted(setting.value), quoted(setting.reason)));
    text += fmt::format("backend.{} = {}\n", name_of(backend), list(items));
  }
}

}  // namespace

std::string to_toml_keys(const EnvironmentProfile& profile) {
  std::string text = fmt::format(
      "kind = \"{}\"\ndescription = {}\nranks_per_container = {}\nnetwork = \"{}\"\n"
      "ipc = \"{}\"\nuts = \"{}\"\npid = \"{}\"\nuser = \"{}\"\nshm_size = {}\n"
      "capabilities = {}\nsecurity_options = {}\nlauncher = \"{}\"\ngpus = \"{}\"\n"
      "declared_aggregation = {}\nunprivileged_variant = {}\n",
      name_of(profile.kind), quoted(profile.description), profile.ranks_per_container,
      name_of(profile.network), name_of(profile.ipc), name_of(profile.uts), name_of(profile.pid),
      name_of(profile.user), profile.shm_size.count(), capabilities(profile),
      texts(profile.security_options), name_of(profile.launcher), name_of(profile.gpus),
      quoted(profile.declared_aggregation), quoted(profile.unprivileged_variant));
  if (!profile.cpus.empty()) text += fmt::format("cpus = {}\n", quoted(profile.cpus));
  // TOML tells floating point numbers by their point.
  if (profile.cpu_limit) text += fmt::format("cpu_limit = {:#}\n", *profile.cpu_limit);
  if (profile.link_bits_per_s)
    text += fmt::format("link_bits_per_s = {:.1f}\n", *profile.link_bits_per_s);
  for (const auto& [name, value] : profile.environment)
    text += fmt::format("environment.{} = {}\n", name, quoted(value));
  add_settings(profile, text);
  return text;
}

}  // namespace dynamiccl
