// Causes that keep ranks of one machine from each other's memory.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "orchestrator/launch/post_mortem.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/regime_links.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

// Two ranks need less than 64 MiB; at 1 MiB MPICH aborts and Open MPI takes a slower path.
constexpr std::uint64_t kSmallShmBytes = std::uint64_t{32} << 20;

bool apart(const std::vector<json>& facts, const char* name) {
  return is_apart(ranks_by_host(facts), name);
}

bool is_docker(const EnvironmentProfile& profile) {
  return profile.kind == EnvironmentKind::single_docker ||
         profile.kind == EnvironmentKind::cross_docker;
}

/// The MPIs whose launch met `test`; failed launches count where a hang or abort may be meant.
std::vector<Backend> mpis(const Symptoms& symptoms, bool (*test)(const BackendLook&)) {
  std::vector<Backend> found;
  for (const auto& look : symptoms.looks) {
    if (is_host_mpi(look.backend) && look.impossible.empty() && test(look))
      found.push_back(look.backend);
  }
  return found;
}

/// Large messages take another way than CMA: UCX even uses TCP where memory could be shared.
bool goes_without_cma(const BackendLook& look) {
  return look.ran() && (look.moved_by("shm") || look.moved_by("mixed") || look.cma_refused > 0 ||
                        (look.asked == "cma" && look.used != "cma") ||
                        (look.asked == "shm" && look.moved_by("tcp")));
}

std::vector<Backend> copying(const Symptoms& symptoms) { return mpis(symptoms, goes_without_cma); }

/// "openmpi: shm, mpich: tcp"
std::string ways(const Symptoms& symptoms, const std::vector<Backend>& backends) {
  std::vector<std::string> parts;
  for (const auto& look : symptoms.looks)
    if (std::find(backends.begin(), backends.end(), look.backend) != backends.end())
      parts.push_back(fmt::format("{}: {}", name_of(look.backend), look.used));
  return join(parts, ", ");
}

/// The first rank that cannot read another process's memory.
const json* refused(const Symptoms& symptoms) {
  for (const json& facts : symptoms.facts)
    if (fact(facts, "cma", "allowed") == false) return &facts;
  return nullptr;
}

std::string why_refused(const json& facts) {
  std::vector<std::string> reasons{fact_text(facts, "cma", "outcome")};
  const json& capabilities = fact(facts, "process", "capabilities");
  if (capabilities.is_object() && capabilities.value("sys_ptrace", json()) == false)
    reasons.emplace_back("no CAP_SYS_PTRACE");
  if (const auto scope = whole_number<int>(fact(facts, "cma", "yama_ptrace_scope")).value_or(0);
      scope > 0)
    reasons.push_back(fmt::format("kernel.yama.ptrace_scope is {}", scope));
  if (fact(facts, "process", "seccomp") == 2) reasons.emplace_back("a seccomp filter is on");
  return join(reasons, ", ");
}

bool has_ptrace(const Symptoms& symptoms) {
  for (const auto& capability : symptoms.profile.capabilities)
    if (capability.name == "SYS_PTRACE") return true;
  return false;
}

}  // namespace

std::optional<Symptom> look_for_blocked_cma(const Symptoms& symptoms) {
  const json* facts = refused(symptoms);
  if (facts == nullptr || apart(symptoms.facts, "shm")) return std::nullopt;
  auto backends = copying(symptoms);
  if (backends.empty()) return std::nullopt;
  return Symptom{fmt::format("{}; large messages take another way ({})", why_refused(*facts),
                             ways(symptoms, backends)),
                 backends};
}

Fix fix_blocked_cma(const Symptoms& symptoms) {
  if (!is_docker(symptoms.profile))
    return {"sysctl kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE for the ranks", std::nullopt};
  EnvironmentProfile profile = symptoms.profile;
  std::vector<std::string> flags;
  if (!has_ptrace(symptoms)) {
    profile.capabilities.push_back({"SYS_PTRACE", "process_vm_readv between ranks (CMA)"});
    flags.emplace_back("--cap-add SYS_PTRACE (capabilities)");
  }
  // The engine's own filter lets through what the capability allows; a user's may not.
  const bool filtered = std::erase_if(profile.security_options, [](const std::string& option) {
                          return option.starts_with("seccomp=");
                        }) > 0;
  if (filtered) flags.emplace_back("without the profile's own seccomp filter (security_options)");
  if (flags.empty()) {
    profile.security_options.emplace_back("seccomp=unconfined");
    flags.emplace_back("--security-opt seccomp=unconfined (security_options)");
  }
  return {join(flags, ", "), std::move(profile)};
}

bool shares_by_luck(const Symptoms& symptoms, Backend backend) {
  return is_host_mpi(backend) && !backend_facts(backend).mca && symptoms.facts.size() > 1 &&
         apart(symptoms.facts, "pid") && !apart(symptoms.facts, "shm");
}

bool starts_by_luck(const Symptoms& symptoms, const BackendLook& look) {
  return look.impossible.empty() && look.asked != "tcp" && shares_by_luck(symptoms, look.backend);
}

namespace {

/// By a setting, as a profile has it that knows of starts_by_luck(): it is its PID namespaces that
/// ask for it. Where IPC namespaces are apart, too, UCX takes no shared memory anyway.
bool is_kept_off(const Symptoms& symptoms, const BackendLook& look) {
  return look.asked == "tcp" && symptoms.profile.kind == EnvironmentKind::cross_docker &&
         symptoms.profile.ipc != Sharing::private_ && shares_by_luck(symptoms, look.backend);
}

}  // namespace

std::optional<Symptom> look_for_separate_pids(const Symptoms& symptoms) {
  if (symptoms.facts.size() < 2 || apart(symptoms.facts, "shm") || !apart(symptoms.facts, "pid"))
    return std::nullopt;
  Symptom symptom{
      "the ranks share /dev/shm but not their PID namespace: a peer's process id means another "
      "process there, so that CMA has to stay off",
      {}};
  for (const auto& look : symptoms.looks) {
    if (!is_host_mpi(look.backend) || !look.impossible.empty() || look.used == "cma") continue;
    const bool lucky = starts_by_luck(symptoms, look);
    // Whether it starts does not hang on single copies; how fast it is does, which is cma-blocked.
    if (!lucky && refused(symptoms) != nullptr) continue;
    const bool seen = look.ran() ? look.asked != "tcp" || is_kept_off(symptoms, look)
                                 : lucky && is_unseen_peer(look.failure);
    if (!seen) continue;
    symptom.backends.push_back(look.backend);
    if (lucky)
      symptom.evidence += fmt::format(
          "; {} starts by luck, as UCX's shared memory wants a process with the peer's id in the "
          "rank's own namespace",
          name_of(look.backend));
  }
  if (symptom.backends.empty()) return std::nullopt;
  return symptom;
}

Fix fix_separate_pids(const Symptoms& symptoms) {
  EnvironmentProfile profile = symptoms.profile;
  std::string flag;
  if (profile.kind == EnvironmentKind::singularity) {
    profile.pid = Sharing::host;
    flag = "without --pid (pid = \"host\")";
  } else if (profile.kind == EnvironmentKind::cross_docker) {
    // Containers of a shared IPC namespace share a PID namespace in the same way.
    const bool of_host = profile.ipc == Sharing::host;
    profile.pid = of_host ? Sharing::host : Sharing::shared;
    flag = of_host ? "--pid=host (pid = \"host\")" : "--pid=container:FIRST (pid = \"shared\")";
  } else {
    return {"one PID namespace for all ranks", std::nullopt};
  }
  allow_cma(profile);
  return {flag, std::move(profile)};
}

std::optional<Symptom> look_for_separate_users(const Symptoms& symptoms) {
  if (symptoms.facts.size() < 2 || apart(symptoms.facts, "shm") || !apart(symptoms.facts, "user"))
    return std::nullopt;
  auto backends = copying(symptoms);
  if (backends.empty()) return std::nullopt;
  return Symptom{
      "every rank has a user namespace of its own, and process_vm_readv between them is refused",
      std::move(backends)};
}

Fix fix_separate_users(const Symptoms& symptoms) {
  if (symptoms.profile.kind != EnvironmentKind::singularity)
    return {"one user namespace for all ranks", std::nullopt};
  EnvironmentProfile profile = symptoms.profile;
  profile.ranks_per_container = 0;
  profile.launcher = LauncherPlace::inside;
  profile.unprivileged_variant.clear();
  allow_cma(profile);
  return {
      "start the launcher inside one container: apptainer exec IMAGE mpirun ... "
      "(launcher = \"inside\", ranks_per_container = 0)",
      std::move(profile)};
}

std::optional<Symptom> look_for_separate_memory(const Symptoms& symptoms) {
  if (symptoms.facts.size() < 2 || !apart(symptoms.facts, "shm")) return std::nullopt;
  auto backends = mpis(symptoms, [](const BackendLook& look) {
    return look.ran() && (look.moved_by("tcp") || look.moved_by("mixed"));
  });
  if (backends.empty()) return std::nullopt;
  const bool ipc = apart(symptoms.facts, "ipc");
  return Symptom{fmt::format("the ranks run on one machine but each has {}a /dev/shm of its own; "
                             "their messages go over TCP",
                             ipc ? "an IPC namespace and " : ""),
                 std::move(backends)};
}

Fix fix_separate_memory(const Symptoms& symptoms) {
  if (symptoms.profile.kind != EnvironmentKind::cross_docker)
    return {"one /dev/shm for all ranks of a machine", std::nullopt};
  EnvironmentProfile profile = symptoms.profile;
  profile.ipc = Sharing::shared;
  // Shared memory alone wins nothing for large messages: UCX then sends them by TCP all the same.
  if (profile.pid == Sharing::private_) profile.pid = Sharing::shared;
  allow_cma(profile);
  return {
      "--ipc=container:FIRST --pid=container:FIRST, the first with --ipc=shareable "
      "(ipc = \"shared\", pid = \"shared\"); Open MPI takes containers for hosts and needs all "
      "ranks in one",
      std::move(profile)};
}

std::optional<Symptom> look_for_small_shm(const Symptoms& symptoms) {
  std::set<json> seen;
  for (const json& facts : symptoms.facts) {
    const auto size = whole_number<std::uint64_t>(fact(facts, "shm", "size_bytes"));
    // A /dev/shm that one rank has for itself carries no messages.
    const bool shared = !seen.insert(namespace_identity(facts, "shm")).second;
    if (!shared || !size || *size >= kSmallShmBytes) continue;
    auto backends = mpis(symptoms, [](const BackendLook&) { return true; });
    std::string evidence =
        fmt::format("/dev/shm holds {}; ranks that share it need {} or more",
                    format_bytes(Bytes(*size)), format_bytes(Bytes(kSmallShmBytes)));
    for (const auto& look : symptoms.looks)
      if (look.backend == Backend::mpich && !look.failure.empty())
        evidence += "; MPICH gives up in MPI_Init";
    if (backends.empty()) return std::nullopt;
    return Symptom{evidence, std::move(backends)};
  }
  return std::nullopt;
}

Fix fix_small_shm(const Symptoms& symptoms) {
  if (!is_docker(symptoms.profile) || symptoms.profile.ipc == Sharing::host)
    return {"mount -o remount,size=1G /dev/shm", std::nullopt};
  EnvironmentProfile profile = symptoms.profile;
  profile.shm_size = Bytes(std::uint64_t{1} << 30);
  return {"--shm-size 1g (shm_size = \"1GiB\")", std::move(profile)};
}

}  // namespace dynamiccl
