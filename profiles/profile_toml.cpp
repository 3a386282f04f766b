#include "profiles/profile_toml.hpp"

#include <sys/prctl.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/simulated.hpp"
#include "profiles/docker_args.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

// capabilities(7), each where its number says; ALL is left out on purpose: each one is named with
// its reason.
constexpr std::array kCapabilities{"CHOWN",
                                   "DAC_OVERRIDE",
                                   "DAC_READ_SEARCH",
                                   "FOWNER",
                                   "FSETID",
                                   "KILL",
                                   "SETGID",
                                   "SETUID",
                                   "SETPCAP",
                                   "LINUX_IMMUTABLE",
                                   "NET_BIND_SERVICE",
                                   "NET_BROADCAST",
                                   "NET_ADMIN",
                                   "NET_RAW",
                                   "IPC_LOCK",
                                   "IPC_OWNER",
                                   "SYS_MODULE",
                                   "SYS_RAWIO",
                                   "SYS_CHROOT",
                                   "SYS_PTRACE",
                                   "SYS_PACCT",
                                   "SYS_ADMIN",
                                   "SYS_BOOT",
                                   "SYS_NICE",
                                   "SYS_RESOURCE",
                                   "SYS_TIME",
                                   "SYS_TTY_CONFIG",
                                   "MKNOD",
                                   "LEASE",
                                   "AUDIT_WRITE",
                                   "AUDIT_CONTROL",
                                   "SETFCAP",
                                   "MAC_OVERRIDE",
                                   "MAC_ADMIN",
                                   "SYSLOG",
                                   "WAKE_ALARM",
                                   "BLOCK_SUSPEND",
                                   "AUDIT_READ",
                                   "PERFMON",
                                   "BPF",
                                   "CHECKPOINT_RESTORE"};
// What Docker and Podman give every container: no flag takes them away here.
constexpr std::array kDefaultCapabilities{
    "AUDIT_WRITE", "CHOWN",     "DAC_OVERRIDE", "FOWNER", "FSETID",           "KILL",
    "MKNOD",       "NET_RAW",   "SETFCAP",      "SETGID", "NET_BIND_SERVICE", "SETPCAP",
    "SETUID",      "SYS_CHROOT"};
// Split off SYS_ADMIN, which stands for them: older engines refuse them by name.
constexpr std::array kYoungCapabilities{"BPF", "CHECKPOINT_RESTORE", "PERFMON"};
constexpr std::array kSecurityOptions{"seccomp=", "apparmor=", "label=", "no-new-privileges"};
constexpr std::array kPlaceholders{"subnet", "interface", "host_address", "run_folder",
                                   "program_folder"};
constexpr Bytes kMinShm{4096};
constexpr std::int64_t kMinMemory = std::int64_t{6} << 20;  // Docker's own least
constexpr const char* kUlimit = "^[a-z]+=(-1|[0-9]+)(:(-1|[0-9]+))?$";
constexpr std::int64_t kMaxRanksPerContainer = 65536;
constexpr double kMinCpuLimit = 0.01;
constexpr double kMaxCpuLimit = 65536;
constexpr double kMinLinkBits = 8e3;
constexpr double kMaxLinkBits = 1e13;

TableKeys capability_keys() {
  TableKeys keys;
  keys.keys = {{"name", rule::filled_text(), "as in capabilities(7), without CAP_", "", true},
               {"reason", rule::filled_text(), "what it is needed for", "", true}};
  return keys;
}

TableKeys setting_keys() {
  TableKeys keys;
  keys.keys = {
      {"name", rule::filled_text(), "VARIABLE, \"mca.PARAMETER\" or \"malloc.SETTING\"", "", true},
      {"value", rule::text(), "may hold {subnet}, {interface} and {host_address}", "", true},
      {"reason", rule::filled_text(), "why it is needed here", "", true}};
  return keys;
}

/// What a profile file and an experiment's [profile.NAME] have in common. "Where absent" is what
/// holds without `extends`.
std::vector<Key> common_keys() {
  const ValueRule sharing = rule::word<Sharing>();
  return {
      {"extends", rule::text(), "the profile that this one starts from"},
      {"kind", rule::word<ProfileKind>(),
       "what separates ranks from each other and the host; simulated: they do not run",
       "of the profile that it extends"},
      {"machine", rule::filled_text(),
       "whose ranks SimGrid simulates: a name that `dynamiccl predict` lists, or a file",
       "ranks run here"},
      {"description", rule::text(Lines::many), "one sentence"},
      {"ranks_per_container", rule::whole(0, kMaxRanksPerContainer),
       "0: all ranks in one container", "0"},
      {"network", sharing, "network namespace: the host's, one of all containers, or each its own",
       "host"},
      {"ipc", sharing, "IPC namespace, with /dev/shm in Docker", "host"},
      {"uts", sharing, "host name", "host"},
      {"pid", sharing, "process ids", "host"},
      {"user", sharing, "user namespace", "host"},
      {"cpus", rule::text_like("^[0-9,-]*$", "CPU numbers as in \"0-3,8\""),
       "CPUs of every container", "all"},
      {"cpu_limit", rule::number(kMinCpuLimit, kMaxCpuLimit), "CPU time of a container, in cores",
       "none"},
      {"memory", rule::size(kMinMemory), "limit of a container's memory, with its swap", "none"},
      {"pids", rule::whole(1, 4'194'304), "most processes and threads of a container", "none"},
      {"ulimits", rule::text_like(kUlimit, "a limit as in \"nofile=64\"").list(),
       "resource limits of a container's processes: \"nofile=64\", \"memlock=65536:65536\""},
      {"mtu", rule::whole(68, 65535), "of the containers' own network", "the engine's"},
      {"image", rule::text_like("^[A-Za-z0-9][A-Za-z0-9._:/@-]*$", "an image's name"),
       "that the engine has (none is pulled), with what containers/packages.txt lists", "ours"},
      {"mounts",
       rule::text_like("^/[^:]*:/[^:]*(:ro)?$", "\"/FROM:/TO\" or \"/FROM:/TO:ro\"").list(),
       "folders or files of the machine in every container: \"/data:/data:ro\""},
      {"docker_args", rule::filled_text().list(),
       "what no key says, behind all other flags of the engine's run: [\"--hostname\", \"a\"]"},
      {"shm_size", rule::size(0), "of a private /dev/shm", "the engine's"},
      {"shared_tmpfs", rule::text_like("^(/[A-Za-z0-9._-]+)*$", "an absolute path"),
       "where all containers have one tmpfs folder of the machine: \"/dev/shm\"", "nowhere"},
      {"capabilities", rule::table(capability_keys()).list(),
       "Linux capabilities of every container"},
      {"security_options", rule::text().list(), "of every container: \"seccomp=unconfined\""},
      {"privileged", rule::boolean(), "as --privileged, but for devices", "false"},
      {"launcher", rule::word<LauncherPlace>(), "where an MPI's launcher runs", "outside"},
      {"gpus", rule::word<GpuVisibility>(), "which GPUs a rank sees", "none"},
      {"environment", rule::chosen(rule::text(), rule::kVariable, "VARIABLE"),
       "environment variables of every rank"},
      {"backend", rule::by_backend(rule::table(setting_keys()).list()),
       "settings that a library needs here"},
      {"link_bits_per_s", rule::number(kMinLinkBits, kMaxLinkBits), "cap of each container's link",
       "none"},
      {"declared_aggregation", rule::text(),
       "in-network aggregation that cannot be detected, stored as declared"},
      {"unprivileged_variant", rule::text(), "the profile for an ordinary user"}};
}

/// What people want of a container and no profile can say.
TableKeys common_table() {
  const std::string rest = "write it as docker_args = [\"--FLAG\", \"VALUE\"]";
  const std::string ranks_user =
      "ranks run as who starts DynamICCL, as they write its records: start it as that user";
  TableKeys keys{common_keys()};
  keys.hints = {{"delay", "no profile delays packets: link_bits_per_s caps the links' rate"},
                {"volumes", "write mounts = [\"/FROM:/TO\"]"},
                {"volume", "write mounts = [\"/FROM:/TO\"]"},
                {"memory_limit", "write memory = \"64MiB\""},
                {"pids_limit", "write pids = 64"},
                {"ulimit", "write ulimits = [\"nofile=64\"]"},
                {"cpuset", "write cpus = \"0-3\""},
                {"user=", "\"user\" says whose user namespace; " + ranks_user},
                {"uid", ranks_user},
                {"run_as", ranks_user},
                {"hostname", rest + ", or uts = \"host\" for the host's"},
                {"devices", rest},
                {"env", "write environment.NAME = \"VALUE\""},
                {"sysctls", rest},
                {"tmpfs", rest + ", or shared_tmpfs for a folder that all have"},
                {"add_host", rest},
                {"dns", rest},
                {"args", rest}};
  return keys;
}

bool is_variable_name(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void check_capability(const Capability& capability, const TableReader& table) {
  const std::vector<std::string> known(kCapabilities.begin(), kCapabilities.end());
  if (std::find(known.begin(), known.end(), capability.name) != known.end()) return;
  if (capability.name == "ALL")
    return table.complain("name", "a container gets no ALL: name each capability with its reason");
  if (capability.name.starts_with("CAP_"))
    return table.complain("name", fmt::format("write \"{}\" without CAP_", capability.name));
  const std::string near = nearest_word(capability.name, known);
  table.complain("name",
                 fmt::format("unknown capability \"{}\", see capabilities(7){}", capability.name,
                             near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

std::vector<Capability> read_capabilities(std::vector<TableReader> tables) {
  std::vector<Capability> capabilities;
  for (auto& table : tables) {
    const auto name = table.text("name");
    const auto reason = table.text("reason");
    table.finish();
    if (!name || !reason) continue;
    capabilities.push_back({*name, *reason});
    check_capability(capabilities.back(), table);
  }
  return capabilities;
}

void check_placeholders(const TableReader& table, const std::string& value) {
  for (std::size_t at = value.find('{'); at != std::string::npos; at = value.find('{', at + 1)) {
    const std::size_t end = value.find('}', at);
    const std::string name =
        end == std::string::npos ? value.substr(at + 1) : value.substr(at + 1, end - at - 1);
    if (end != std::string::npos &&
        std::find(kPlaceholders.begin(), kPlaceholders.end(), name) != kPlaceholders.end())
      continue;
    table.complain("value",
                   fmt::format("unknown placeholder \"{{{}}}\"; {}", name,
                               suggestion(name, {kPlaceholders.begin(), kPlaceholders.end()})));
  }
}

/// nullopt when a part of it is missing or wrong, which has been noted.
std::optional<BackendSetting> read_setting(Backend backend, TableReader& table) {
  const auto name = table.text("name");
  const auto value = table.text("value");
  const auto reason = table.text("reason");
  table.finish();
  if (!name || !value || !reason) return std::nullopt;
  const SettingName given = profile_setting(*name);
  BackendSetting setting{{given.scope, given.name, *value}, *reason};
  if (!given.note.empty()) table.note("name", given.note);
  check_placeholders(table, setting.value);
  if (setting.scope == SettingScope::malloc) {
    const auto mistake = malloc_setting_mistake(setting.name, setting.value);
    if (!mistake.empty()) table.complain("value", mistake);
    return setting;
  }
  if (setting.scope == SettingScope::mca && !backend_facts(backend).mca)
    table.complain("name", fmt::format("\"{}\" is an Open MPI parameter, but the backend is {}",
                                       *name, name_of(backend)));
  if (setting.scope == SettingScope::call || !is_variable_name(setting.name))
    table.complain(
        "name", fmt::format("\"{}\" is neither an environment variable nor \"mca.PARAMETER\" nor "
                            "\"malloc.SETTING\"",
                            *name));
  return setting;
}

void read_backends(EnvironmentProfile& profile, TableReader& backends) {
  for (const Named<Backend>& entry : NameTable<Backend>::entries) {
    const std::string name(entry.name);
    if (!backends.has(name)) continue;
    auto& settings = profile.backend_settings[entry.value];
    for (auto& table : backends.tables(name)) {
      auto setting = read_setting(entry.value, table);
      if (!setting) continue;
      const auto same = std::find_if(settings.begin(), settings.end(), [&](const auto& known) {
        return known.scope == setting->scope && known.name == setting->name;
      });
      if (same == settings.end())
        settings.push_back(*std::move(setting));
      else
        *same = *std::move(setting);
    }
  }
  backends.finish();
}

void read_environment(EnvironmentProfile& profile, TableReader& environment) {
  for (const std::string& name : environment.keys()) {
    if (!is_variable_name(name))
      environment.complain(name, fmt::format("\"{}\" is no environment variable name", name));
    if (const auto value = environment.text(name)) profile.environment[name] = *value;
  }
}

/// `privileged = true` as what it stands for on this machine, so that `doctor --least` can leave
/// out one by one. An engine gives nothing that the machine itself has not.
void add_privileges(EnvironmentProfile& profile) {
  const auto has = [](const auto& list, const auto& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (std::size_t number = 0; number < kCapabilities.size(); ++number) {
    const std::string name = kCapabilities[number];
    if (::prctl(PR_CAPBSET_READ, number) != 1) continue;
    const auto given =
        std::find_if(profile.capabilities.begin(), profile.capabilities.end(),
                     [&](const Capability& capability) { return capability.name == name; });
    if (!has(kDefaultCapabilities, name) && !has(kYoungCapabilities, name) &&
        given == profile.capabilities.end())
      profile.capabilities.push_back({name, "privileged"});
  }
  for (const std::string option : {"seccomp=unconfined", "apparmor=unconfined"})
    if (!has(profile.security_options, option)) profile.security_options.push_back(option);
}

template <class T>
void assign(T& target, std::optional<T> value) {
  if (value) target = *std::move(value);
}

void read_options(ContainerOptions& options, TableReader& keys) {
  assign(options.memory, keys.size("memory"));
  if (const auto count = keys.integer("pids")) options.pids = static_cast<int>(*count);
  if (const auto bytes = keys.integer("mtu")) options.mtu = static_cast<int>(*bytes);
  assign(options.image, keys.text("image"));
  for (auto& [key, values] : {std::pair{"ulimits", &options.ulimits},
                              {"mounts", &options.mounts},
                              {"docker_args", &options.docker_args}})
    if (keys.has(key)) *values = keys.texts(key);
  if (const std::string mistake = docker_args_mistake(options.docker_args); !mistake.empty())
    keys.complain("docker_args", mistake);
}

void read_isolation(EnvironmentProfile& profile, TableReader& keys) {
  assign(profile.network, keys.name<Sharing>("network"));
  assign(profile.ipc, keys.name<Sharing>("ipc"));
  assign(profile.uts, keys.name<Sharing>("uts"));
  assign(profile.pid, keys.name<Sharing>("pid"));
  assign(profile.user, keys.name<Sharing>("user"));
  read_options(profile.options, keys);
  const auto shm_size = keys.size("shm_size");
  assign(profile.shm_size, shm_size);
  if (shm_size && *shm_size != Bytes(0) && *shm_size < kMinShm)
    keys.complain("shm_size",
                  fmt::format("\"shm_size\" is {}; at least {}, or 0 for the engine's default",
                              format_bytes(*shm_size), format_bytes(kMinShm)));
  assign(profile.shared_tmpfs, keys.text("shared_tmpfs"));
  assign(profile.cpus, keys.text("cpus"));
  if (const auto limit = keys.number("cpu_limit")) profile.cpu_limit = limit;
  if (keys.has("capabilities"))
    profile.capabilities = read_capabilities(keys.tables("capabilities"));
  if (keys.has("security_options")) profile.security_options = keys.texts("security_options");
  for (const std::string& option : profile.security_options) {
    const auto known = std::find_if(kSecurityOptions.begin(), kSecurityOptions.end(),
                                    [&](const char* prefix) { return option.starts_with(prefix); });
    if (known == kSecurityOptions.end())
      keys.complain("security_options",
                    fmt::format("unknown security option \"{}\"; known: {}", option,
                                join({kSecurityOptions.begin(), kSecurityOptions.end()}, ", ")));
  }
  if (keys.boolean("privileged").value_or(false)) add_privileges(profile);
}

const char* first_option(const ContainerOptions& options) {
  if (options.memory.count() > 0) return "memory";
  if (options.pids > 0) return "pids";
  if (!options.ulimits.empty()) return "ulimits";
  if (options.mtu > 0) return "mtu";
  if (!options.image.empty()) return "image";
  return options.mounts.empty() ? "docker_args" : "mounts";
}

/// Where ranks do not run, nothing is set for them; and nobody may take them for ranks that do.
template <class Refuse>
void check_simulated(const EnvironmentProfile& profile, const Refuse& refuse) {
  const bool named = is_simulated(profile.name);
  refuse(profile.simulated() && !named, "machine",
         fmt::format("\"machine\" needs a name that says so: [profile.{}{}]", kSimulatedPrefix,
                     profile.name));
  refuse(!profile.simulated() && named, "kind",
         fmt::format("names that begin with \"{}\" are of profiles with kind = \"simulated\"",
                     kSimulatedPrefix));
  refuse(profile.simulated() && !profile.environment.empty(), "environment",
         "\"environment\" sets variables of ranks that run, and simulated ones do not");
  refuse(profile.simulated() && !profile.backend_settings.empty(), "backend",
         "\"backend\" sets what libraries take, and simulated ranks load none");
  refuse(profile.simulated() && profile.gpus != GpuVisibility::none, "gpus",
         "\"gpus\" must be \"none\": simulated ranks see none");
  refuse(profile.simulated() && !profile.unprivileged_variant.empty(), "unprivileged_variant",
         "\"unprivileged_variant\" is for ranks that run: no user lacks rights to simulate");
}

/// Notes what contradicts itself (a shm size on the host's /dev/shm, capabilities on bare metal).
void check_profile(const EnvironmentProfile& profile, const TableReader& keys) {
  const bool docker = profile.in_engine();
  std::set<std::string> refused;  // one mistake a key
  const auto refuse = [&](bool wrong, const std::string& key, const std::string& why) {
    if (!wrong || !refused.insert(key).second) return;
    keys.complain(key, fmt::format("profile \"{}\" ({}): {}", profile.name,
                                   name_of(profile.profile_kind()), why));
  };
  check_simulated(profile, refuse);
  const bool bare = profile.kind == EnvironmentKind::bare_metal;
  for (const auto& [key, sharing] : {std::pair{"network", profile.network},
                                     {"ipc", profile.ipc},
                                     {"uts", profile.uts},
                                     {"pid", profile.pid},
                                     {"user", profile.user}}) {
    refuse(bare && sharing != Sharing::host, key,
           fmt::format("\"{}\" must be \"host\": bare metal has no namespace of its own", key));
    refuse(!docker && sharing == Sharing::shared, key,
           fmt::format("\"{}\" cannot be \"shared\": only containers of one engine share theirs",
                       key));
  }
  refuse(docker && profile.user != Sharing::host, "user",
         "\"user\" must be \"host\": user namespaces are the engine's own configuration here");
  refuse(!docker && !profile.capabilities.empty(), "capabilities",
         "capabilities are given to Docker or Podman containers only");
  refuse(!docker && !profile.security_options.empty(), "security_options",
         "security options are given to Docker or Podman containers only");
  refuse(!docker && (!profile.cpus.empty() || profile.cpu_limit.has_value()),
         profile.cpus.empty() ? "cpu_limit" : "cpus",
         "CPUs are given to Docker or Podman containers only");
  refuse(!docker && profile.options != ContainerOptions{}, first_option(profile.options),
         "it is given to Docker or Podman containers only");
  refuse(profile.options.mtu > 0 && profile.network == Sharing::host, "mtu",
         "an MTU needs a network of the containers' own");
  refuse(profile.shm_size != Bytes(0) && (!docker || profile.ipc == Sharing::host), "shm_size",
         "\"shm_size\" needs a /dev/shm of the container's own (a Docker kind and \"ipc\" not "
         "\"host\")");
  refuse(bare && !profile.shared_tmpfs.empty(), "shared_tmpfs",
         "\"shared_tmpfs\" is for containers: without any all ranks see the machine's own");
  refuse(profile.shared_tmpfs == "/dev/shm" && profile.shm_size != Bytes(0), "shm_size",
         "\"shm_size\" must be 0: with \"shared_tmpfs\" at /dev/shm no container has its own");
  refuse(profile.kind == EnvironmentKind::single_docker && profile.ranks_per_container != 0,
         "ranks_per_container", "\"ranks_per_container\" must be 0: one container holds all ranks");
  refuse(profile.kind == EnvironmentKind::cross_docker && profile.ranks_per_container == 0,
         "ranks_per_container", "\"ranks_per_container\" must be at least 1");
  refuse(bare && profile.ranks_per_container != 0, "ranks_per_container",
         "\"ranks_per_container\" must be 0: there is no container");
  const bool one_container =
      profile.kind == EnvironmentKind::single_docker ||
      (profile.kind == EnvironmentKind::singularity && profile.ranks_per_container == 0);
  refuse(!bare && (profile.launcher == LauncherPlace::inside) != one_container, "launcher",
         one_container ? "\"launcher\" must be \"inside\": one container holds all ranks"
                       : "\"launcher\" must be \"outside\": a launcher inside one container cannot "
                         "enter the others");
  refuse(bare && profile.launcher == LauncherPlace::inside, "launcher",
         "\"launcher\" must be \"outside\": there is no container");
  refuse(profile.link_bits_per_s.has_value() &&
             !(profile.kind == EnvironmentKind::cross_docker && profile.network != Sharing::host),
         "link_bits_per_s", "a link rate needs containers with network links of their own");
}

}  // namespace

const TableKeys& profile_keys() {
  static const TableKeys keys = common_table();
  return keys;
}

const TableKeys& profile_file_keys() {
  static const TableKeys keys = [] {
    TableKeys file = common_table();
    file.keys.insert(file.keys.begin(),
                     {"name", rule::filled_text(), "what experiments call it", "", true});
    return file;
  }();
  return keys;
}

namespace {

static_assert(static_cast<int>(ProfileKind::simulated) ==
              static_cast<int>(NameTable<EnvironmentKind>::entries.size()));

void read_kind(EnvironmentProfile& profile, TableReader& keys) {
  const auto kind = keys.name<ProfileKind>("kind");
  const bool extends_simulated = profile.simulated();
  assign(profile.machine, keys.text("machine"));
  if (kind && *kind != ProfileKind::simulated) profile.kind = static_cast<EnvironmentKind>(*kind);
  if (kind == ProfileKind::simulated) {
    profile.kind = EnvironmentKind::bare_metal;
    // What the profile that it extends sets for ranks is not for these.
    profile.gpus = GpuVisibility::none;
    profile.environment.clear();
    profile.backend_settings.clear();
    profile.unprivileged_variant.clear();
    if (!profile.simulated())
      keys.complain("kind", fmt::format("profile \"{}\": \"simulated\" needs machine = \"NAME\", "
                                        "one that `dynamiccl predict` lists or a file",
                                        profile.name));
  } else if (profile.simulated() && (kind || !extends_simulated)) {
    keys.complain("machine", fmt::format("profile \"{}\": \"machine\" goes with kind = "
                                         "\"simulated\"",
                                         profile.name));
  }
}

}  // namespace

EnvironmentProfile apply_profile_keys(const EnvironmentProfile& base, TableReader& keys) {
  const std::size_t before = keys.mistakes().count();
  EnvironmentProfile profile = base;
  read_kind(profile, keys);
  assign(profile.description, keys.text("description"));
  if (const auto count = keys.integer("ranks_per_container"))
    profile.ranks_per_container = static_cast<int>(*count);
  read_isolation(profile, keys);
  assign(profile.launcher, keys.name<LauncherPlace>("launcher"));
  assign(profile.gpus, keys.name<GpuVisibility>("gpus"));
  if (auto environment = keys.table("environment")) read_environment(profile, *environment);
  if (auto backends = keys.table("backend")) read_backends(profile, *backends);
  if (const auto rate = keys.number("link_bits_per_s")) profile.link_bits_per_s = rate;
  assign(profile.declared_aggregation, keys.text("declared_aggregation"));
  assign(profile.unprivileged_variant, keys.text("unprivileged_variant"));
  keys.finish();
  // What was not understood contradicts nothing.
  if (keys.mistakes().count() == before) check_profile(profile, keys);
  return profile;
}

}  // namespace dynamiccl
