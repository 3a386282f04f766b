#include "profiles/profile.hpp"

#include <fmt/format.h>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/named_json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/docker_args.hpp"

namespace dynamiccl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Capability, name, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EnvironmentProfile, name, kind, description, ranks_per_container,
                                   network, ipc, uts, pid, user, capabilities, security_options,
                                   launcher, gpus, environment, declared_aggregation,
                                   unprivileged_variant)

namespace {

constexpr std::string_view kBindingParameter = "hwloc_base_binding_policy";

/// A JSON string is a TOML basic string.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string toml_list(const std::vector<std::string>& items) {
  return items.empty() ? "[]" : fmt::format("[\n  {},\n]", join(items, ",\n  "));
}

std::string toml_capabilities(const EnvironmentProfile& profile) {
  std::vector<std::string> items;
  for (const auto& capability : profile.capabilities)
    items.push_back(fmt::format("{{ name = {}, reason = {} }}", quoted(capability.name),
                                quoted(capability.reason)));
  return toml_list(items);
}

std::string texts(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const auto& value : values) items.push_back(quoted(value));
  return fmt::format("[{}]", join(items, ", "));
}

/// Only what is set, so that profiles without them keep their groups' ids.
nlohmann::json options_json(const ContainerOptions& options) {
  nlohmann::json keys = nlohmann::json::object();
  if (options.memory.count() > 0) keys["memory_bytes"] = options.memory.count();
  if (options.pids > 0) keys["pids"] = options.pids;
  if (!options.ulimits.empty()) keys["ulimits"] = options.ulimits;
  if (options.mtu > 0) keys["mtu"] = options.mtu;
  if (!options.image.empty()) keys["image"] = options.image;
  if (!options.mounts.empty()) keys["mounts"] = options.mounts;
  if (!options.docker_args.empty()) keys["docker_args"] = options.docker_args;
  return keys;
}

ContainerOptions options_from(const nlohmann::json& keys) {
  using Texts = std::vector<std::string>;
  ContainerOptions options{Bytes(keys.value("memory_bytes", std::uint64_t{0})),
                           keys.value("pids", 0),
                           keys.value("ulimits", Texts{}),
                           keys.value("mtu", 0),
                           keys.value("image", ""),
                           keys.value("mounts", Texts{}),
                           keys.value("docker_args", Texts{})};
  // A stored launch may be somebody else's.
  if (const std::string mistake = docker_args_mistake(options.docker_args); !mistake.empty())
    throw Error(ErrorKind::data, "docker_args of a stored profile: " + mistake);
  return options;
}

void add_options(const ContainerOptions& options, std::string& text) {
  if (options.memory.count() > 0) text += fmt::format("memory = {}\n", options.memory.count());
  if (options.pids > 0) text += fmt::format("pids = {}\n", options.pids);
  if (options.mtu > 0) text += fmt::format("mtu = {}\n", options.mtu);
  if (!options.image.empty()) text += fmt::format("image = {}\n", quoted(options.image));
  for (const auto& [key, values] : {std::pair{"ulimits", &options.ulimits},
                                    {"mounts", &options.mounts},
                                    {"docker_args", &options.docker_args}})
    if (!values->empty()) text += fmt::format("{} = {}\n", key, texts(*values));
}

void add_settings(const EnvironmentProfile& profile, std::string& text) {
  for (const auto& [backend, settings] : profile.backend_settings) {
    std::vector<std::string> items;
    for (const auto& setting : settings)
      items.push_back(fmt::format("{{ name = {}, value = {}, reason = {} }}",
                                  quoted(profile_text(setting.scope, setting.name)),
                                  quoted(setting.value), quoted(setting.reason)));
    text += fmt::format("backend.{} = {}\n", name_of(backend), toml_list(items));
  }
}

}  // namespace

std::string to_json(const EnvironmentProfile& profile) {
  using nlohmann::json;
  json backends = json::object();
  for (const auto& [backend, settings] : profile.backend_settings) {
    json& list = backends[std::string(name_of(backend))] = json::array();
    for (const auto& setting : settings)
      list.push_back({{"name", stored_setting_text(setting.scope, setting.name)},
                      {"value", setting.value},
                      {"reason", setting.reason}});
  }
  json keys = profile;
  keys["shm_size_bytes"] = profile.shm_size.count();
  keys["backend"] = backends;
  keys["link_bits_per_s"] =
      profile.link_bits_per_s ? json(*profile.link_bits_per_s) : json(nullptr);
  // Left out where they are not set, so that profiles without them keep their groups' ids.
  if (!profile.cpus.empty()) keys["cpus"] = profile.cpus;
  if (!profile.shared_tmpfs.empty()) keys["shared_tmpfs"] = profile.shared_tmpfs;
  if (!profile.cluster.empty()) keys["cluster"] = profile.cluster;
  if (profile.cpu_limit) keys["cpu_limit"] = *profile.cpu_limit;
  if (profile.options != ContainerOptions{}) keys["options"] = options_json(profile.options);
  if (profile.simulated()) {
    keys["kind"] = name_of(ProfileKind::simulated);
    keys["machine"] = profile.machine;
    keys["machine_toml"] = profile.machine_toml;
  }
  return keys.dump(-1, ' ', false, json::error_handler_t::replace);
}

nlohmann::json shown_profile(nlohmann::json stored) {
  if (!stored.is_object() || !stored.contains("backend") || !stored["backend"].is_object())
    return stored;
  for (auto& settings : stored["backend"]) {
    if (!settings.is_array()) continue;
    for (auto& one : settings) {
      if (!one.is_object() || !one.contains("name") || !one["name"].is_string()) continue;
      const auto name = profile_setting(one["name"].get<std::string>());
      one["name"] = profile_text(name.scope, name.name);
    }
  }
  return stored;
}

std::string to_toml_keys(const EnvironmentProfile& profile) {
  std::string text = fmt::format(
      "kind = \"{}\"\ndescription = {}\nranks_per_container = {}\nnetwork = \"{}\"\n"
      "ipc = \"{}\"\nuts = \"{}\"\npid = \"{}\"\nuser = \"{}\"\nshm_size = {}\n"
      "capabilities = {}\nsecurity_options = {}\nlauncher = \"{}\"\ngpus = \"{}\"\n"
      "declared_aggregation = {}\nunprivileged_variant = {}\n",
      name_of(profile.profile_kind()), quoted(profile.description), profile.ranks_per_container,
      name_of(profile.network), name_of(profile.ipc), name_of(profile.uts), name_of(profile.pid),
      name_of(profile.user), profile.shm_size.count(), toml_capabilities(profile),
      texts(profile.security_options), name_of(profile.launcher), name_of(profile.gpus),
      quoted(profile.declared_aggregation), quoted(profile.unprivileged_variant));
  if (profile.simulated()) text += fmt::format("machine = {}\n", quoted(profile.machine));
  if (!profile.cpus.empty()) text += fmt::format("cpus = {}\n", quoted(profile.cpus));
  if (!profile.shared_tmpfs.empty())
    text += fmt::format("shared_tmpfs = {}\n", quoted(profile.shared_tmpfs));
  // TOML tells floating point numbers by their point.
  if (profile.cpu_limit) text += fmt::format("cpu_limit = {:#}\n", *profile.cpu_limit);
  add_options(profile.options, text);
  if (profile.link_bits_per_s)
    text += fmt::format("link_bits_per_s = {:.1f}\n", *profile.link_bits_per_s);
  for (const auto& [name, value] : profile.environment)
    text += fmt::format("environment.{} = {}\n", name, quoted(value));
  add_settings(profile, text);
  return text;
}

EnvironmentProfile profile_from_json(const std::string& text) {
  using nlohmann::json;
  EnvironmentProfile profile;
  try {
    json o = parsed_json(text);
    profile.machine = o.value("machine", "");
    profile.machine_toml = o.value("machine_toml", "");
    if (profile.simulated()) o["kind"] = name_of(EnvironmentKind::bare_metal);
    o.get_to(profile);
    profile.shm_size = Bytes(o.at("shm_size_bytes").get<std::uint64_t>());
    for (const auto& [backend, settings] : o.at("backend").items()) {
      auto& list = profile.backend_settings[parse_named<Backend>(backend)];
      for (const auto& one : settings) {
        auto setting = profile_setting(one.at("name").get<std::string>());
        list.push_back(
            {{setting.scope, std::move(setting.name), one.at("value")}, one.at("reason")});
      }
    }
    profile.cpus = o.value("cpus", "");
    profile.shared_tmpfs = o.value("shared_tmpfs", "");
    profile.cluster = o.value("cluster", "");
    if (o.contains("cpu_limit")) profile.cpu_limit = o.at("cpu_limit");
    if (o.contains("options")) profile.options = options_from(o.at("options"));
    if (!o.at("link_bits_per_s").is_null()) profile.link_bits_per_s = o.at("link_bits_per_s");
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data, std::string("stored profile: ") + error.what());
  }
  return profile;
}

ProfilePromise promise_of(const EnvironmentProfile& profile) {
  ProfilePromise promise;
  promise.environment = profile.name;
  promise.ranks_per_container = profile.ranks_per_container;
  const bool bare = profile.kind == EnvironmentKind::bare_metal;
  const bool docker = profile.kind == EnvironmentKind::single_docker ||
                      profile.kind == EnvironmentKind::cross_docker;
  if (bare)
    promise.runtimes = {"none"};
  else if (docker)
    promise.runtimes = {"docker", "podman"};
  else
    promise.runtimes = {"singularity"};
  promise.binding_is_its_own = !profile.cpus.empty();
  for (const auto& [backend, settings] : profile.backend_settings)
    for (const auto& setting : settings)
      if (setting.scope == SettingScope::mca && setting.name == kBindingParameter)
        promise.binding_is_its_own = true;
  const bool one_container = bare || profile.ranks_per_container == 0;
  const auto promised = [&](const char* name, Sharing sharing) {
    return NamespacePromise{name, sharing == Sharing::host,
                            sharing != Sharing::private_ || one_container};
  };
  // Whether the engine itself runs in a user namespace (rootless, userns-remap) is its own affair.
  NamespacePromise user = promised("user", profile.user);
  if (docker) user.with_host.reset();
  promise.namespaces = {promised("net", profile.network),
                        promised("ipc", profile.ipc),
                        promised("uts", profile.uts),
                        promised("pid", profile.pid),
                        user,
                        promised("mnt", bare ? Sharing::host : Sharing::private_)};
  // Docker gives /dev/shm with the IPC namespace; Singularity binds the host's in any case.
  const bool own_shm = docker && profile.shared_tmpfs != "/dev/shm";
  promise.namespaces.push_back(promised("shm", own_shm ? profile.ipc : Sharing::host));
  return promise;
}

const EnvironmentProfile& find_profile(const std::map<std::string, EnvironmentProfile>& profiles,
                                       const std::string& name) {
  if (const auto found = profiles.find(name); found != profiles.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [known_name, profile] : profiles) known.push_back(known_name);
  throw Error(ErrorKind::input,
              fmt::format("unknown environment profile \"{}\"; {}", name, suggestion(name, known)));
}

const EnvironmentProfile& profile_for_user(
    const std::map<std::string, EnvironmentProfile>& profiles, const std::string& name,
    bool unprivileged) {
  const EnvironmentProfile& profile = find_profile(profiles, name);
  if (!unprivileged || profile.unprivileged_variant.empty()) return profile;
  return find_profile(profiles, profile.unprivileged_variant);
}

}  // namespace dynamiccl
