#include "profiles/detect/regime_links.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/json.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/probes/one_host.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

bool any_rank(const HostGroups& hosts, const auto& test) {
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks)
      if (test(*facts)) return true;
  return false;
}

/// What NCCL takes for one host: equal host name (or NCCL_HOSTID) and boot id.
bool looks_like_one_host(const HostGroups& hosts) {
  for (const auto& [host, ranks] : hosts) {
    std::set<std::string> identities;
    for (const json* facts : ranks) {
      const std::string named = variable(*facts, "NCCL_HOSTID");
      identities.insert(named.empty() ? fact_text(*facts, "system", "hostname") : named);
    }
    if (identities.size() > 1) return false;
  }
  return true;
}

/// A container with one GPU of several cannot map its peers' memory.
bool peers_are_visible(const HostGroups& hosts) {
  for (const auto& [host, ranks] : hosts) {
    if (ranks.size() < 2) continue;
    for (const json* facts : ranks) {
      if (whole_number<std::size_t>(fact(*facts, "gpu", "usable")).value_or(0) < 2) return false;
    }
  }
  return true;
}

/// How the GPUs of the machine reach each other, by NVML's matrix.
std::string gpu_peer_link(const HostGroups& hosts) {
  std::set<std::string> paths;
  bool known = true;
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks) {
      const json& nvml = fact(*facts, "gpu", "nvml");
      const auto rows = nvml.is_object() ? nvml.find("p2p") : nvml.end();
      if (!nvml.is_object() || rows == nvml.end() || !rows->is_array()) {
        known = false;
        continue;
      }
      for (const json& row : *rows)
        if (row.is_array())
          for (const json& path : row)
            if (path.is_string()) paths.insert(path.get<std::string>());
    }
  if (paths.contains("nvlink")) return "nvlink";
  if (paths.contains("pcie")) return "pcie";
  if (paths.contains("none")) return "none";
  if (any_rank(hosts, [](const json& facts) { return fact(facts, "gpu", "nvlink") == true; }))
    return "nvlink";
  return known && !paths.contains("unknown") ? "none" : "unknown";
}

/// Does a rank alone promise to be made one host with others of its folder (docs/one-host.md)?
bool may_be_one_host(const json& facts) {
  const json& meeting = fact(facts, "shm", "meeting");
  const bool fit = meeting.is_object() && meeting.value("trouble", json()) == "none";
  return fit && preloads_one_host(variable(facts, "LD_PRELOAD")) &&
         whole_number<int>(fact(facts, "gpu", "imex_channels")).value_or(0) == 0;
}

/// What must be equal for ranks to be one host by the library; null: this one is not.
json one_host_identity(const json& facts) {
  const std::string told = variable(facts, "NCCL_HOSTID");
  // What the library has answered NCCL, where it has been asked.
  if (!told.empty()) return told.starts_with(kOneHostIdBegin) ? json(told) : json();
  if (!may_be_one_host(facts)) return {};
  return {{"folder", fact(facts, "shm", "folder")}, {"gpus", fact(facts, "gpu", "usable")}};
}

Ingredient gpu_link(const HostGroups& hosts, const RegimeContext& context, bool shared_memory) {
  const bool nccl = context.backend == Backend::nccl;
  const bool peer_off =
      any_rank(hosts, [](const json& facts) { return variable(facts, "NCCL_P2P_DISABLE") == "1"; });
  const bool shm_off =
      any_rank(hosts, [](const json& facts) { return variable(facts, "NCCL_SHM_DISABLE") == "1"; });
  const bool library = nccl && is_one_host_by_library(hosts);
  if (nccl && !library && !looks_like_one_host(hosts))
    return {"none", "the ranks' host names differ: NCCL takes them for different machines"};
  if (!library && !shared_memory)
    return {"none", "the ranks' /dev/shm differ: no peer access, no shared memory"};
  const Ingredient staged =
      nccl && shm_off ? Ingredient{"none", "NCCL_SHM_DISABLE=1"}
      : library       ? Ingredient{"shm", "one host by a library and a folder of all ranks"}
                      : Ingredient{"shm", "one /dev/shm for the ranks of a host"};
  const auto staged_because = [&](const std::string& why) {
    return Ingredient{staged.value, why + "; " + staged.evidence};
  };
  if (nccl && peer_off) return staged_because("NCCL_P2P_DISABLE=1");
  if (!library && is_apart(hosts, "net"))
    return staged_because("separate network namespaces: CUDA memory handles cannot be passed");
  if (is_apart(hosts, "mnt") && !peers_are_visible(hosts))
    return staged_because("a container sees one GPU only");
  const std::string link = gpu_peer_link(hosts);
  const std::string by = library ? "; one host by a library and a folder of all ranks" : "";
  if (link == "nvlink") return {"nvlink", "NVLink between the GPUs" + by};
  if (link == "pcie") return {"pcie", "peer access over PCIe, no NVLink" + by};
  if (link == "none") return staged_because("the GPUs have no peer access");
  return {"unknown", "how the GPUs reach each other is not known (NVML was not read)"};
}

struct Link {
  std::string link;
  std::string tier;
  std::string evidence;
  auto operator<=>(const Link&) const = default;
};

/// The fastest RDMA port that this process may use.
std::optional<Link> rdma_link(const json& facts, const RegimeContext& context) {
  const auto usable = whole_number<std::size_t>(fact(facts, "rdma", "usable_devices")).value_or(0);
  const bool blocked = !backend_facts(context.backend).only_transport.empty() ||
                       variable(facts, "NCCL_IB_DISABLE") == "1" ||
                       variable(facts, "NCCL_NET") == "Socket";
  if (blocked || usable == 0) return std::nullopt;
  std::optional<Link> best;
  double best_rate = -1;
  const json& devices = fact(facts, "rdma", "devices");
  if (!devices.is_array()) return std::nullopt;
  for (const json& device : devices) {
    if (!device.is_object() || !device.contains("ports") || !device["ports"].is_array()) continue;
    for (const json& port : device["ports"]) {
      if (!port.is_object() || port.value("active", json()) != true) continue;
      const json fabric = port.value("fabric", json());
      const json rate = port.value("rate_gbit_per_s", json());
      if (!fabric.is_string()) continue;
      const double gbit = rate.is_number() ? rate.get<double>() : 0;
      if (gbit <= best_rate) continue;
      best_rate = gbit;
      const std::string tier =
          gbit > 0 ? std::to_string(static_cast<long>(gbit)) + "Gb/s" : "unknown";
      best = Link{fabric.get<std::string>(), tier, "active port of a usable RDMA device"};
    }
  }
  return best;
}

/// NVLink between nodes, which ranks have where all GPUs are of one fabric (NVL72 and its like).
std::optional<Link> nvswitch_link(const std::vector<json>& facts, const RegimeContext& context) {
  if (context.backend != Backend::nccl || ranks_by_host(facts).size() < 2) return std::nullopt;
  std::set<json> domains;
  double mbyte_per_s = 0;
  for (const json& rank : facts) {
    const json& nvml = fact(rank, "gpu", "nvml");
    const json devices = nvml.is_object() ? nvml.value("devices", json::array()) : json::array();
    if (variable(rank, "NCCL_MNNVL_ENABLE") == "0" || !devices.is_array() || devices.empty())
      return std::nullopt;
    for (const json& device : devices) {
      const json fabric = device.is_object() ? device.value("fabric", json()) : json();
      if (!fabric.is_object() || fabric.value("ready", json()) != true ||
          fabric.value("multi_node", json()) != true || !fabric.contains("cluster"))
        return std::nullopt;
      domains.insert(json::array({fabric["cluster"], fabric.value("clique", json())}));
      const json links = device.value("nvlinks_active", json());
      const json speed = device.value("nvlink_mbyte_per_s", json());
      if (links.is_number() && speed.is_number())
        mbyte_per_s = links.get<double>() * speed.get<double>();
    }
  }
  if (domains.size() != 1) return std::nullopt;
  const auto gbit = static_cast<long>(mbyte_per_s * 8 / 1e3);
  return Link{"nvswitch", gbit > 0 ? std::to_string(gbit) + "Gb/s" : "unknown",
              "all ranks' GPUs are of one NVLink fabric over several nodes"};
}

bool leaves_the_machine(const json& interface) {
  constexpr std::array kKinds{"ethernet", "bond", "veth", "ipoib", "unknown"};
  const json kind = interface.value("kind", json());
  const bool candidate =
      std::any_of(kKinds.begin(), kKinds.end(), [&](const char* known) { return kind == known; });
  return candidate &&
         (interface.value("up", json()) == true || interface.value("state", json()) == "up");
}

Link tcp_link(const json& facts) {
  const json& interfaces = fact(facts, "network", "interfaces");
  if (!interfaces.is_array()) return {"unknown", "unknown", "the interfaces are not known"};
  std::optional<Link> best;
  double best_speed = -1;
  for (const json& interface : interfaces) {
    if (!interface.is_object() || !leaves_the_machine(interface)) continue;
    const json tier = interface.value("tier", json());
    const json speed = interface.value("speed_mbit_per_s", json());
    // What a virtual link claims is no speed.
    const double mbit = speed.is_number() && tier != "virtual" ? speed.get<double>() : 0;
    if (mbit <= best_speed) continue;
    best_speed = mbit;
    const json name = interface.value("name", json());
    best = Link{"tcp", tier.is_string() ? tier.get<std::string>() : "unknown",
                "interface " + (name.is_string() ? name.get<std::string>() : "without a name")};
  }
  return best.value_or(Link{"none", "none", "no interface but loopback is up"});
}

bool library_loaded(const json& facts, std::string_view name) {
  const json& loaded = fact(facts, "libraries", "loaded");
  if (!loaded.is_array()) return false;
  return std::any_of(loaded.begin(), loaded.end(), [&](const json& library) {
    return library.is_object() && library.value("name", json()) == name;
  });
}

bool nvswitch_present(const json& facts) {
  if (whole_number<std::size_t>(fact(facts, "gpu", "nvswitches")).value_or(0) > 0) return true;
  const json& nvml = fact(facts, "gpu", "nvml");
  if (!nvml.is_object() || !nvml.contains("devices") || !nvml["devices"].is_array()) return false;
  for (const json& device : nvml["devices"]) {
    if (!device.is_object()) continue;
    if (device.value("nvlink_remote", json()) == "switch") return true;
  }
  return false;
}

std::string declared_aggregation(const std::vector<json>& facts, const RegimeContext& context) {
  if (!context.declared_aggregation.empty()) return context.declared_aggregation;
  for (const json& rank : facts) {
    const json& declared = fact(rank, "aggregation", "declared_aggregation");
    if (declared.is_object() && declared.value("value", json()).is_string())
      return declared["value"].get<std::string>();
  }
  return "";
}

}  // namespace

HostGroups ranks_by_host(const std::vector<json>& facts) {
  HostGroups hosts;
  for (const json& rank : facts) hosts[fact_text(rank, "system", "boot_id")].push_back(&rank);
  return hosts;
}

bool is_apart(const HostGroups& hosts, const std::string& name) {
  for (const auto& [host, ranks] : hosts) {
    std::set<json> identities;
    for (const json* facts : ranks) identities.insert(namespace_identity(*facts, name));
    if (identities.size() > 1) return true;
  }
  return false;
}

bool is_one_host_by_library(const HostGroups& hosts) {
  bool several = false;
  for (const auto& [host, ranks] : hosts) {
    std::set<json> identities;
    for (const json* facts : ranks) identities.insert(one_host_identity(*facts));
    if (identities.size() > 1 || identities.begin()->is_null()) return false;
    several = several || ranks.size() > 1;
  }
  return several;
}

std::string one_host_by(const HostGroups& hosts, const RegimeContext& context) {
  if (context.backend != Backend::nccl) return "";
  if (is_one_host_by_library(hosts)) return "library";
  const bool named =
      is_apart(hosts, "uts") && !is_apart(hosts, "shm") && looks_like_one_host(hosts) &&
      !any_rank(hosts, [](const json& facts) { return variable(facts, "NCCL_HOSTID").empty(); });
  return named ? "settings" : "";
}

bool uses_gpu(Backend backend) { return backend_facts(backend).on_gpu; }

Ingredient intra_link(const HostGroups& hosts, const RegimeContext& context) {
  const bool unknown =
      any_rank(hosts, [](const json& facts) { return fact(facts, "shm", "device").is_null(); });
  if (unknown || hosts.empty()) return {"unknown", "a rank's /dev/shm is not known"};
  const bool shared_memory = !is_apart(hosts, "shm");
  if (uses_gpu(context.backend)) return gpu_link(hosts, context, shared_memory);
  if (shared_memory) return {"shm", "one /dev/shm for the ranks of a host"};
  return {"none", "the ranks' /dev/shm differ"};
}

DetectedInterLink inter_link(const std::vector<json>& facts, const RegimeContext& context) {
  std::set<Link> links;
  const auto nvswitch = nvswitch_link(facts, context);
  if (nvswitch) links.insert(*nvswitch);
  for (const json& rank : facts)
    if (!nvswitch) links.insert(rdma_link(rank, context).value_or(tcp_link(rank)));
  if (links.empty()) return {{"unknown", "no facts"}, {"unknown", "no facts"}};
  std::set<std::string> kinds;
  std::set<std::string> tiers;
  for (const Link& link : links) {
    kinds.insert(link.link);
    tiers.insert(link.tier);
  }
  DetectedInterLink result{{kinds.size() == 1 ? *kinds.begin() : "mixed", links.begin()->evidence},
                           {tiers.size() == 1 ? *tiers.begin() : "mixed", links.begin()->evidence}};
  if (context.declared_link_bits_per_s) {
    const long mbit = static_cast<long>(*context.declared_link_bits_per_s / 1e6);
    result.tier = {"shaped-" + std::to_string(mbit) + "Mbit/s",
                   "declared by the profile, which caps the containers' links"};
  }
  return result;
}

Ingredient in_network_aggregation(const std::vector<json>& facts, const RegimeContext& context) {
  const bool nccl = context.backend == Backend::nccl;
  for (const json& rank : facts) {
    const bool possible = fact(rank, "aggregation", "collnet_possible") == true;
    const bool requested = fact(rank, "aggregation", "collnet_requested") == true;
    if (nccl && possible && requested)
      return {"sharp", "detected: NCCL_COLLNET_ENABLE=1, a CollNet plugin and an InfiniBand port"};
    if (library_loaded(rank, "sharp"))
      return {"sharp", "detected: the SHARP library is loaded into the process"};
  }
  if (const std::string declared = declared_aggregation(facts, context); !declared.empty())
    return {"declared:" + declared, "declared, not detected"};
  for (const json& rank : facts)
    if (nccl && nvswitch_present(rank) && fact_text(rank, "aggregation", "nvls_setting") != "0")
      return {"nvls-possible", "NVSwitch is there and NCCL_NVLS_ENABLE is not 0"};
  return {"none", "nothing found, nothing declared"};
}

}  // namespace dynamiccl
