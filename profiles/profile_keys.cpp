#include "profiles/profile_toml.hpp"

namespace dynamiccl {
namespace {

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
  return {{"extends", rule::text(), "the profile that this one starts from"},
          {"kind", rule::word<EnvironmentKind>(),
           "what separates ranks from each other and the host", "of the profile that it extends"},
          {"description", rule::text(Lines::many), "one sentence"},
          {"ranks_per_container", rule::whole(0, kMaxRanksPerContainer),
           "0: all ranks in one container", "0"},
          {"network", sharing,
           "network namespace: the host's, one of all containers, or each its own", "host"},
          {"ipc", sharing, "IPC namespace, with /dev/shm in Docker", "host"},
          {"uts", sharing, "host name", "host"},
          {"pid", sharing, "process ids", "host"},
          {"user", sharing, "user namespace", "host"},
          {"cpus", rule::text_like("^[0-9,-]*$", "CPU numbers as in \"0-3,8\""),
           "CPUs of every container", "all"},
          {"cpu_limit", rule::number(kMinCpuLimit, kMaxCpuLimit),
           "CPU time of a container, in cores", "none"},
          {"shm_size", rule::size(0), "of a private /dev/shm", "the engine's"},
          {"capabilities", rule::table(capability_keys()).list(),
           "Linux capabilities of every container"},
          {"security_options", rule::text().list(), "of every container: \"seccomp=unconfined\""},
          {"launcher", rule::word<LauncherPlace>(), "where an MPI's launcher runs", "outside"},
          {"gpus", rule::word<GpuVisibility>(), "which GPUs a rank sees", "none"},
          {"environment", rule::chosen(rule::text(), rule::kVariable, "VARIABLE"),
           "environment variables of every rank"},
          {"backend", rule::by_backend(rule::table(setting_keys()).list()),
           "settings that a library needs here"},
          {"link_bits_per_s", rule::number(kMinLinkBits, kMaxLinkBits),
           "cap of each container's link", "none"},
          {"declared_aggregation", rule::text(),
           "in-network aggregation that cannot be detected, stored as declared"},
          {"unprivileged_variant", rule::text(), "the profile for an ordinary user"}};
}

}  // namespace

const TableKeys& profile_keys() {
  static const TableKeys keys{common_keys()};
  return keys;
}

const TableKeys& profile_file_keys() {
  static const TableKeys keys = [] {
    TableKeys file{common_keys()};
    file.keys.insert(file.keys.begin(),
                     {"name", rule::filled_text(), "what experiments call it", "", true});
    return file;
  }();
  return keys;
}

}  // namespace dynamiccl
