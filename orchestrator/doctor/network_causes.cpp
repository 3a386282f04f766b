// Causes on the way of messages that leave a rank by TCP.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "orchestrator/doctor/given_settings.hpp"
#include "orchestrator/doctor/interface_lists.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/regime_links.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

constexpr const char* kInclude = "btl_tcp_if_include";
constexpr const char* kExclude = "btl_tcp_if_exclude";
constexpr const char* kRanking = "rmaps_base_ranking_policy";

std::vector<Backend> over_tcp(const Symptoms& symptoms) {
  std::vector<Backend> backends;
  for (const auto& look : symptoms.looks)
    if (look.ran() && (look.moved_by("tcp") || look.moved_by("mixed")))
      backends.push_back(look.backend);
  return backends;
}

bool has_bridge_network(const Symptoms& symptoms) {
  return symptoms.profile.kind == EnvironmentKind::cross_docker &&
         symptoms.profile.network == Sharing::private_ && symptoms.facts.size() > 1 &&
         is_apart(ranks_by_host(symptoms.facts), "net");
}

std::string text_at(const json& object, const char* key) {
  const json value = object.value(key, json());
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// Ranks by number, as the nodes that they are on: hosts, or containers with networks of their own.
std::vector<json> nodes_of(const BackendLook& look) {
  std::vector<json> nodes;
  for (const json& facts : look.facts)
    nodes.push_back(
        json::array({fact_text(facts, "system", "boot_id"), namespace_identity(facts, "net")}));
  return nodes;
}

/// A ring's hops from a rank to the next one that leave the rank's node.
std::size_t crossing_hops(const std::vector<json>& nodes) {
  std::size_t hops = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    hops += nodes[i] != nodes[(i + 1) % nodes.size()] ? 1 : 0;
  return hops;
}

/// Libraries whose ranks alternate between nodes that have several of them each.
std::vector<const BackendLook*> dealt(const Symptoms& symptoms) {
  std::vector<const BackendLook*> found;
  for (const auto& look : symptoms.looks) {
    const auto nodes = nodes_of(look);
    const std::set<json> distinct(nodes.begin(), nodes.end());
    if (look.ran() && distinct.size() > 1 && distinct.size() < nodes.size() &&
        crossing_hops(nodes) == nodes.size())
      found.push_back(&look);
  }
  return found;
}

/// Interfaces that only join containers: docker0 and other engines' bridges.
std::vector<NamedInterface> bridges(const json& facts) {
  std::vector<NamedInterface> found;
  const json& interfaces = fact(facts, "network", "interfaces");
  if (!interfaces.is_array()) return found;
  for (const json& interface : interfaces) {
    if (!interface.is_object() || text_at(interface, "kind") != "bridge") continue;
    NamedInterface bridge{text_at(interface, "name"), {}};
    const json addresses = interface.value("addresses", json::array());
    if (!addresses.is_array()) continue;
    for (const json& address : addresses)
      if (address.is_string()) bridge.addresses.push_back(address.get<std::string>());
    // One without an address is offered to nobody.
    if (!bridge.name.empty() && !bridge.addresses.empty()) found.push_back(std::move(bridge));
  }
  return found;
}

/// Given its interfaces by parameters, not by a variable.
bool takes_parameters(Backend backend) { return backend_facts(backend).mca; }

/// The variable by which any other library gets them.
std::string interface_variable(Backend backend) {
  return std::string(backend_facts(backend).interface_variable);
}

/// The setting by which a library gets its interfaces.
std::optional<GivenSetting> told_interfaces(const Symptoms& symptoms, const BackendLook& look) {
  if (!takes_parameters(look.backend)) {
    auto told = given_setting(symptoms, look, interface_variable(look.backend));
    return told && !told->value.empty() ? told : std::nullopt;
  }
  // The launcher keeps a single host's TCP on the loopback interface, whatever a file says.
  for (const char* name : {kInclude, kExclude})
    if (auto told = given_setting(symptoms, look, name);
        told && (told->removal.empty() || look.many_hosts))
      return told;
  return std::nullopt;
}

bool may_use(const Symptoms& symptoms, const BackendLook& look, const NamedInterface& bridge) {
  const auto told = told_interfaces(symptoms, look);
  if (!told) return takes_parameters(look.backend) && look.many_hosts;
  if (takes_parameters(look.backend))
    return openmpi_list_names(told->value, bridge) == (told->name == kInclude);
  return look.backend == Backend::nccl ? nccl_list_admits(told->value, bridge.name)
                                       : plain_list_names(told->value, bridge.name);
}

/// Bytes went over TCP, or the launch failed: one that hung is what a wrong interface looks like.
bool depends_on_interface(const BackendLook& look) {
  if (!look.impossible.empty()) return false;
  return !look.ran() || look.moved_by("tcp") || look.moved_by("mixed") || look.moved_by("net");
}

/// A backend and the container bridges that it may use.
struct Misled {
  const BackendLook* look;
  std::vector<std::string> bridges;
};

std::vector<Misled> misled_backends(const Symptoms& symptoms) {
  std::vector<Misled> misled;
  if (symptoms.facts.empty()) return misled;
  const auto known = bridges(symptoms.facts.front());
  for (const auto& look : symptoms.looks) {
    if (!depends_on_interface(look)) continue;
    Misled one{&look, {}};
    for (const auto& bridge : known)
      if (may_use(symptoms, look, bridge)) one.bridges.push_back(bridge.name);
    if (!one.bridges.empty()) misled.push_back(std::move(one));
  }
  return misled;
}

/// Every interface of a rank that has an address: a library uses no other.
std::vector<NamedInterface> usable_interfaces(const json& facts) {
  std::vector<NamedInterface> found;
  const json& interfaces = fact(facts, "network", "interfaces");
  if (!interfaces.is_array()) return found;
  for (const json& interface : interfaces) {
    if (!interface.is_object()) continue;
    NamedInterface named{text_at(interface, "name"), {}};
    const json addresses = interface.value("addresses", json::array());
    if (addresses.is_array())
      for (const json& address : addresses)
        if (address.is_string()) named.addresses.push_back(address.get<std::string>());
    if (!named.name.empty() && !named.addresses.empty()) found.push_back(std::move(named));
  }
  return found;
}

/// A placeholder in a list is filled in when a launch starts: it names what is there.
bool has_placeholder(const std::string& list) { return list.find('{') != std::string::npos; }

/// PyTorch and our worker take each word of the list for an interface, and end as they start where
/// one is not there.
bool ends_gloo(const BackendLook& look, const GivenSetting& told,
               const std::vector<NamedInterface>& known) {
  if (look.backend != Backend::gloo) return false;
  auto words = split(told.value, ',');
  if (words.back().empty()) words.pop_back();  // "eth0," names one
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::none_of(known.begin(), known.end(),
                        [&](const NamedInterface& one) { return one.name == word; });
  });
}

std::vector<GivenSetting> without_interface(const Symptoms& symptoms) {
  std::vector<GivenSetting> found;
  if (symptoms.facts.empty()) return found;
  const auto known = usable_interfaces(symptoms.facts.front());
  for (const auto& look : symptoms.looks) {
    auto told = told_interfaces(symptoms, look);
    if (known.empty() || !told || has_placeholder(told->value) || !look.impossible.empty())
      continue;
    const bool none =
        !look.ran() && std::none_of(known.begin(), known.end(), [&](const NamedInterface& one) {
          return may_use(symptoms, look, one);
        });
    if (none || ends_gloo(look, *told, known)) found.push_back(*std::move(told));
  }
  return found;
}

/// Takes a variable away, wherever the profile sets it.
void drop_variable(EnvironmentProfile& profile, Backend backend, const std::string& name) {
  drop_setting(profile, backend, SettingScope::env, name);
  profile.environment.erase(name);
}

/// Gives a backend the network that the ranks share.
/// @returns how a user does
std::string use_shared_network(EnvironmentProfile& profile, const BackendLook& look) {
  const Backend backend = look.backend;
  const bool host = profile.network == Sharing::host;
  const std::string value = host ? "{interface}" : "{subnet}";
  const std::string reason =
      "the network the ranks share; a container bridge reaches no other rank";
  const std::string place = fmt::format(" (backend.{})", name_of(backend));
  if (takes_parameters(backend)) {
    drop_setting(profile, backend, SettingScope::mca, kExclude);
    for (const char* name : {kInclude, "oob_tcp_if_include"})
      put_setting(profile, backend, {{SettingScope::mca, name, value}, reason});
    // Open MPI takes one of the two only.
    return fmt::format(
        "--mca {0} {1} --mca oob_tcp_if_include {1}{2}{3}", kInclude, host ? "INTERFACE" : "SUBNET",
        look.mca.contains(kExclude) ? fmt::format(" without {}", kExclude) : "", place);
  }
  const std::string variable = interface_variable(backend);
  if (backend == Backend::nccl) {
    put_setting(profile, backend, {{SettingScope::env, variable, "{interface}"}, reason});
    return variable + "=INTERFACE" + place;
  }
  drop_variable(profile, backend, variable);
  return "without " + variable + place;
}

}  // namespace

std::optional<Symptom> look_for_bridge(const Symptoms& symptoms) {
  auto backends = over_tcp(symptoms);
  if (backends.empty() || !has_bridge_network(symptoms)) return std::nullopt;
  return Symptom{
      "the ranks have network namespaces of their own on one machine: every message crosses two "
      "veth pairs and the engine's bridge",
      std::move(backends)};
}

Fix fix_bridge(const Symptoms& symptoms) {
  EnvironmentProfile profile = symptoms.profile;
  use_host_network(profile);
  return {"--network=host (network = \"host\")", std::move(profile)};
}

std::optional<Symptom> look_for_capped_link(const Symptoms& symptoms) {
  auto backends = over_tcp(symptoms);
  if (backends.empty() || !symptoms.profile.link_bits_per_s) return std::nullopt;
  return Symptom{fmt::format("the profile caps every container's link to {:g} Mbit/s",
                             *symptoms.profile.link_bits_per_s / 1e6),
                 std::move(backends)};
}

Fix fix_capped_link(const Symptoms& symptoms) {
  EnvironmentProfile profile = symptoms.profile;
  profile.link_bits_per_s.reset();
  return {"no rate limit on the containers' links (without link_bits_per_s)", std::move(profile)};
}

std::optional<Symptom> look_for_dealt_ranks(const Symptoms& symptoms) {
  const auto looks = dealt(symptoms);
  if (looks.empty()) return std::nullopt;
  Symptom symptom;
  for (const auto* look : looks) symptom.backends.push_back(look->backend);
  const auto nodes = nodes_of(*looks.front());
  const std::size_t count = std::set<json>(nodes.begin(), nodes.end()).size();
  symptom.evidence = fmt::format(
      "no rank's next one is on its node, so that {} hops of a ring cross a link; numbered node by "
      "node, {} would",
      nodes.size(), count);
  for (const auto* look : looks)
    for (const char* name : {kRanking, "rmaps_base_mapping_policy"})
      if (const auto given = given_setting(symptoms, *look, name))
        symptom.evidence += fmt::format(" ({}: {})", given->text(), given->origin);
  return symptom;
}

Fix fix_dealt_ranks(const Symptoms& symptoms) {
  Fix fix{
      "rmaps_base_ranking_policy=slot (Open MPI: --mca, or OMPI_MCA_ before the name as a "
      "variable, which outweighs --map-by node), -ppn RANKS_PER_NODE (MPICH), "
      "--distribution=block (srun)",
      std::nullopt};
  EnvironmentProfile profile = symptoms.profile;
  for (const auto* look : dealt(symptoms)) {
    if (!takes_parameters(look->backend)) continue;
    put_setting(profile, look->backend,
                {{SettingScope::mca, kRanking, "slot"}, "neighbours in rank share a node"});
    fix.profile = profile;
  }
  return fix;
}

std::optional<Symptom> look_for_wrong_interface(const Symptoms& symptoms) {
  const auto misled = misled_backends(symptoms);
  if (misled.empty()) return std::nullopt;
  Symptom symptom;
  std::vector<std::string> seen;
  std::string hung;
  for (const auto& [look, bridges] : misled) {
    symptom.backends.push_back(look->backend);
    seen.push_back(fmt::format("{} may use {}", name_of(look->backend), join(bridges, ", ")));
    if (look->timed_out)
      hung += fmt::format("; {}'s launch did not come to an end", name_of(look->backend));
  }
  symptom.evidence =
      fmt::format("{}: a container bridge joins containers and reaches no other rank{}",
                  join(seen, "; "), hung);
  return symptom;
}

std::optional<Symptom> look_for_no_interface(const Symptoms& symptoms) {
  const auto told = without_interface(symptoms);
  if (told.empty()) return std::nullopt;
  Symptom symptom;
  std::vector<std::string> settings;
  bool gloo = false;
  for (const auto& setting : told) {
    symptom.backends.push_back(setting.look->backend);
    const bool of_gloo = setting.look->backend == Backend::gloo;
    gloo = gloo || of_gloo;
    settings.push_back(fmt::format(
        "{} is set to {} ({}), {}", name_of(setting.look->backend), setting.text(), setting.origin,
        of_gloo ? "each word of which Gloo's programs, PyTorch's too, take for the name of an "
                  "interface, and end as they start where it is not there"
                : "which leaves none of the interfaces that are there"));
  }
  std::vector<std::string> there;
  for (const auto& interface : usable_interfaces(symptoms.facts.front()))
    there.push_back(fmt::format("{} ({})", interface.name, join(interface.addresses, ", ")));
  symptom.evidence =
      fmt::format("{}{}: {}", join(settings, "; "), gloo ? "; there are" : "", join(there, ", "));
  return symptom;
}

Fix fix_no_interface(const Symptoms& symptoms) {
  Fix fix = without_settings(symptoms.profile, without_interface(symptoms));
  fix.flag += ", or with an interface that is there";
  return fix;
}

Fix fix_wrong_interface(const Symptoms& symptoms) {
  EnvironmentProfile profile = symptoms.profile;
  std::vector<std::string> flags;
  for (const auto& misled : misled_backends(symptoms))
    flags.push_back(use_shared_network(profile, *misled.look));
  return {join(flags, ", "), std::move(profile)};
}

}  // namespace dynamiccl
