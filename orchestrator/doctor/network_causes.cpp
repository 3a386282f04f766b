// Causes on the way of messages that leave a rank by TCP.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/mends.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/regime_links.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

constexpr const char* kInclude = "btl_tcp_if_include";
constexpr const char* kExclude = "btl_tcp_if_exclude";

std::vector<Backend> over_tcp(const Patient& patient) {
  std::vector<Backend> backends;
  for (const auto& look : patient.looks)
    if (look.ran() && (look.moved_by("tcp") || look.moved_by("mixed")))
      backends.push_back(look.backend);
  return backends;
}

bool has_bridge_network(const Patient& patient) {
  return patient.profile.kind == EnvironmentKind::cross_docker &&
         patient.profile.network == Sharing::private_ && patient.facts.size() > 1 &&
         is_apart(ranks_by_host(patient.facts), "net");
}

std::string text_of(const json& object, const char* key) {
  const json value = object.value(key, json());
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// Interfaces that only join containers: docker0 and other engines' bridges.
std::set<std::string> bridges(const json& facts) {
  std::set<std::string> names;
  const json& interfaces = fact(facts, "network", "interfaces");
  if (!interfaces.is_array()) return names;
  for (const json& interface : interfaces) {
    if (!interface.is_object() || text_of(interface, "kind") != "bridge") continue;
    const std::string name = text_of(interface, "name");
    const json addresses = interface.value("addresses", json::array());
    // One without an address is offered to nobody.
    if (!name.empty() && addresses.is_array() && !addresses.empty()) names.insert(name);
  }
  return names;
}

/// Which of `bridges` an Open MPI without or with these parameters may use.
std::set<std::string> open_to_openmpi(const BackendLook& look, std::set<std::string> bridges) {
  const auto include = look.mca.find(kInclude);
  const auto exclude = look.mca.find(kExclude);
  if (include != look.mca.end()) {
    const auto named = split(include->second, ',');
    std::erase_if(bridges, [&](const std::string& name) {
      return std::find(named.begin(), named.end(), name) == named.end();
    });
  } else if (exclude != look.mca.end()) {
    const auto named = split(exclude->second, ',');
    std::erase_if(bridges, [&](const std::string& name) {
      return std::find(named.begin(), named.end(), name) != named.end();
    });
  } else if (!look.many_hosts) {
    bridges.clear();  // the launcher keeps a single host's TCP on the loopback interface
  }
  return bridges;
}

std::set<std::string> wrong_interfaces(const BackendLook& look,
                                       const std::set<std::string>& bridges) {
  if (look.backend == Backend::openmpi) return open_to_openmpi(look, bridges);
  const char* variable = look.backend == Backend::nccl   ? "NCCL_SOCKET_IFNAME"
                         : look.backend == Backend::gloo ? "GLOO_SOCKET_IFNAME"
                                                         : "UCX_NET_DEVICES";
  const auto named = look.environment.find(variable);
  std::set<std::string> wrong;
  if (named != look.environment.end())
    for (const auto& name : split(named->second, ','))
      if (bridges.contains(name)) wrong.insert(name);
  return wrong;
}

}  // namespace

std::optional<Symptom> look_for_bridge(const Patient& patient) {
  auto backends = over_tcp(patient);
  if (backends.empty() || !has_bridge_network(patient)) return std::nullopt;
  return Symptom{
      "the ranks have network namespaces of their own on one machine: every message crosses two "
      "veth pairs and the engine's bridge",
      std::move(backends)};
}

Mend mend_bridge(const Patient& patient) {
  EnvironmentProfile profile = patient.profile;
  use_host_network(profile);
  return {"--network=host (network = \"host\")", std::move(profile)};
}

std::optional<Symptom> look_for_capped_link(const Patient& patient) {
  auto backends = over_tcp(patient);
  if (backends.empty() || !patient.profile.link_bits_per_s) return std::nullopt;
  return Symptom{fmt::format("the profile caps every container's link to {:g} Mbit/s",
                             *patient.profile.link_bits_per_s / 1e6),
                 std::move(backends)};
}

Mend mend_capped_link(const Patient& patient) {
  EnvironmentProfile profile = patient.profile;
  profile.link_bits_per_s.reset();
  return {"no rate limit on the containers' links (without link_bits_per_s)", std::move(profile)};
}

std::optional<Symptom> look_for_wrong_interface(const Patient& patient) {
  if (patient.facts.empty()) return std::nullopt;
  const auto known = bridges(patient.facts.front());
  Symptom symptom;
  std::set<std::string> names;
  for (const auto& look : patient.looks) {
    // A launch that hung is what this looks like.
    if (!look.impossible.empty() ||
        (look.ran() && !look.moved_by("tcp") && !look.moved_by("mixed")))
      continue;
    const auto wrong = wrong_interfaces(look, known);
    if (wrong.empty()) continue;
    names.insert(wrong.begin(), wrong.end());
    symptom.backends.push_back(look.backend);
    symptom.evidence =
        fmt::format("{} may use {}, which joins containers and reaches no other rank",
                    name_of(look.backend), join({names.begin(), names.end()}, ", "));
    if (look.timed_out) symptom.evidence += "; its launch did not come to an end";
  }
  if (symptom.backends.empty()) return std::nullopt;
  return symptom;
}

Mend mend_wrong_interface(const Patient& patient) {
  EnvironmentProfile profile = patient.profile;
  const std::string value = profile.network == Sharing::host ? "{interface}" : "{subnet}";
  const std::string reason =
      "the network the ranks share; a container bridge reaches no other rank";
  for (const Backend backend : {Backend::openmpi, Backend::cuda_aware_mpi}) {
    drop_setting(profile, backend, std::string("mca:") + kExclude);
    put_setting(profile, backend, {std::string("mca:") + kInclude, value, reason});
    put_setting(profile, backend, {"mca:oob_tcp_if_include", value, reason});
  }
  put_setting(profile, Backend::nccl, {"NCCL_SOCKET_IFNAME", "{interface}", reason});
  drop_setting(profile, Backend::gloo, "GLOO_SOCKET_IFNAME");
  drop_setting(profile, Backend::mpich, "UCX_NET_DEVICES");
  return {fmt::format("--mca btl_tcp_if_include {0} --mca oob_tcp_if_include {0} "
                      "(backend.openmpi)",
                      value == "{subnet}" ? "SUBNET" : "INTERFACE"),
          std::move(profile)};
}

}  // namespace dynamiccl
