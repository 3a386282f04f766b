#include "profiles/detect/regime.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/link_rates.hpp"
#include "profiles/detect/pair_places.hpp"
#include "profiles/detect/probes/known.hpp"
#include "profiles/detect/regime_links.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

// 64 MiB are enough for two ranks, at 1 MiB MPICH aborts: below this the mount changes the path.
constexpr std::uint64_t kSmallShmBytes = std::uint64_t{32} << 20;

/// "4.1.4" as "4.1".
std::string major_minor(const std::string& version) {
  std::size_t end = 0;
  int dots = 0;
  for (; end < version.size(); ++end) {
    const char c = version[end];
    if (c == '.' && ++dots == 2) break;
    if (c != '.' && std::isdigit(static_cast<unsigned char>(c)) == 0) break;
  }
  std::string text = version.substr(0, end);
  while (text.ends_with('.')) text.pop_back();
  return text.empty() ? "unknown" : text;
}

std::set<json> identities(const HostGroups& hosts, const std::string& name) {
  std::set<json> found;
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks)
      found.insert(json::array({host, namespace_identity(*facts, name)}));
  return found;
}

Ingredient boundary(const HostGroups& hosts) {
  std::set<std::string> runtimes;
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks) {
      const std::string runtime = fact_text(*facts, "container", "runtime");
      runtimes.insert(runtime.empty() ? "unknown" : runtime);
    }
  if (runtimes.empty()) return {"unknown", "no facts"};
  if (runtimes.size() != 1)
    return {"mixed", "the ranks run under " + join({runtimes.begin(), runtimes.end()}, " and ")};
  const std::string& runtime = *runtimes.begin();
  if (runtime == "none") return {"bare-metal", "no sign of a container"};
  if (runtime == "singularity") return {"singularity", "runtime singularity"};
  if (runtime == "unknown") return {"unknown", "the facts name no runtime"};
  constexpr std::array kDockerLike{"docker", "podman", "containerd", "kubernetes"};
  const bool docker_like =
      std::find(kDockerLike.begin(), kDockerLike.end(), runtime) != kDockerLike.end();
  const std::size_t containers = identities(hosts, "mnt").size();
  // One container per host is the single-container shape on every host.
  const bool cross = containers > hosts.size();
  return {std::string(cross ? "cross-" : "single-") + (docker_like ? "docker" : runtime),
          "runtime " + runtime + ", " + std::to_string(containers) + " container(s) on " +
              std::to_string(hosts.size()) + " host(s)"};
}

Ingredient apart(const HostGroups& hosts) {
  json list = json::array();
  for (const char* name : {"net", "ipc", "uts", "pid", "user", "shm"})
    if (is_apart(hosts, name)) list.push_back(name);
  return {std::move(list), "namespace inodes and the /dev/shm device compared over the ranks"};
}

bool all_ranks(const HostGroups& hosts, const auto& test) {
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks)
      if (!test(*facts)) return false;
  return true;
}

Ingredient single_copy(const HostGroups& hosts) {
  const bool allowed =
      all_ranks(hosts, [](const json& facts) { return fact(facts, "cma", "allowed") == true; });
  if (!allowed) return {false, "process_vm_readv is refused or was not tested"};
  if (is_apart(hosts, "pid"))
    return {false, "separate PID namespaces: a peer's pid means another process"};
  if (is_apart(hosts, "user")) return {false, "separate user namespaces"};
  return {true, "process_vm_readv works in every rank"};
}

Ingredient small_shm(const HostGroups& hosts) {
  const bool large = all_ranks(hosts, [](const json& facts) {
    const auto size = whole_number<std::uint64_t>(fact(facts, "shm", "size_bytes"));
    return !size || *size >= kSmallShmBytes;
  });
  return {!large, large ? "no /dev/shm is below 32 MiB" : "a /dev/shm is below 32 MiB"};
}

/// A bus address as all who name it write it: "00000000:1B:00.0" is "1b:00.0" of domain 0.
std::string short_address(std::string pci) {
  std::transform(pci.begin(), pci.end(), pci.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  const auto first = pci.find_first_not_of("0:");
  return first == std::string::npos ? pci : pci.substr(first);
}

/// The GPU that a rank computes on: its UUID, or host and bus address where NVML names none; ""
/// where the rank has said none.
std::string own_gpu(const std::string& host, const json& facts) {
  const std::string own = short_address(fact_text(facts, "gpu", "own_pci"));
  if (own.empty()) return "";
  const json& nvml = fact(facts, "gpu", "nvml");
  if (nvml.is_object() && nvml.contains("devices") && nvml["devices"].is_array())
    for (const json& device : nvml["devices"]) {
      if (!device.is_object()) continue;
      const json pci = device.value("pci", json());
      const json uuid = device.value("uuid", json());
      if (pci.is_string() && uuid.is_string() && short_address(pci.get<std::string>()) == own)
        return uuid.get<std::string>();
    }
  return host + " " + own;
}

Ingredient gpu_mode(const HostGroups& hosts, const RegimeContext& context) {
  if (!uses_gpu(context.backend)) return {"none", "the backend uses no GPU"};
  std::set<std::string> modes;
  std::set<std::string> gpus;
  std::string shared;
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks) {
      const std::string mode = fact_text(*facts, "gpu", "sharing_mode");
      modes.insert(mode.empty() ? "unknown" : mode);
      const std::string gpu = own_gpu(host, *facts);
      if (!gpu.empty() && !gpus.insert(gpu).second) shared = gpu;
    }
  const std::string mode = modes.size() == 1 ? *modes.begin() : "mixed";
  // Without MPS and MIG, kernels of two processes on one GPU take turns.
  if (mode == "dedicated" && !shared.empty())
    return {"time-slice", "ranks share the GPU " + shared};
  return {mode, "MIG instances, MPS control pipe, the ranks' own GPUs"};
}

std::string apart_text(const json& names) {
  std::string text;
  const bool ipc = std::find(names.begin(), names.end(), "ipc") != names.end();
  for (const json& name : names)
    // A separate IPC namespace brings its own /dev/shm.
    if (!(ipc && name == "shm")) text += " " + name.get<std::string>();
  return text.empty() ? "all shared" : "apart:" + text;
}

std::string readable_name(const std::map<std::string, Ingredient>& all,
                          const std::string& one_host) {
  const auto text = [&](const char* key) {
    const json& value = all.at(key).value;
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  const std::string intra = text("intra_link");
  std::string local = intra == "none" ? "no shared link" : intra;
  if (!one_host.empty()) local += " (one host by " + one_host + ")";
  if (intra == "shm" && all.at("single_copy").value == true) local += "+cma";
  if (all.at("small_shm").value == true) local += " (small /dev/shm)";
  const std::string link = text("inter_link");
  const std::string tier = text("inter_tier");
  const std::string outside = link == "none"  ? "no network"
                              : link == "tcp" ? "tcp eth-" + tier
                                              : link + " " + tier;
  std::vector<std::string> parts{text("boundary"), apart_text(all.at("apart").value), local,
                                 outside};
  parts.push_back(text("gpu") == "none" ? "no GPU" : "GPU " + text("gpu"));
  if (text("ina") != "none") parts.push_back("INA " + text("ina"));
  parts.push_back(text("library"));
  return join(parts, " / ");
}

/// Whether the RDMA devices of every rank's machine may reach GPU memory themselves: by the
/// driver's peer memory module or by DMA-BUF; null where a rank does not know.
json gpudirect(const HostGroups& hosts) {
  json all = true;
  for (const auto& [host, ranks] : hosts)
    for (const json* facts : ranks) {
      const json& module = fact(*facts, "rdma", "gpudirect_peermem");
      const json& buffers = fact(*facts, "rdma", "gpudirect_dmabuf_possible");
      if (module == true || buffers == true) continue;
      if (module.is_null() || buffers.is_null())
        all = nullptr;
      else
        return false;
    }
  return all;
}

/// The state features that follow from the surroundings alone.
json features(const std::vector<json>& facts, const HostGroups& hosts, const RegimeContext& context,
              const std::map<std::string, Ingredient>& all) {
  const auto is = [&](const char* key, const char* value) { return all.at(key).value == value; };
  const json& boundary_value = all.at("boundary").value;
  const std::string where = boundary_value.get<std::string>();
  json ordinal;  // in the order bare metal, Singularity, single Docker, cross-Docker
  constexpr std::array kOrdinal{"bare-metal", "singularity", "single-docker", "cross-docker"};
  for (std::size_t i = 0; i < kOrdinal.size(); ++i)
    if (where == kOrdinal[i]) ordinal = i;
  json nvlink;
  std::size_t gpus = 0;
  if (!facts.empty()) {
    nvlink = fact(facts.front(), "gpu", "nvlink");
    gpus = whole_number<std::size_t>(fact(facts.front(), "gpu", "on_bus_nvidia")).value_or(0);
  }
  json pcie_only;  // a question only where there are several GPUs
  if (nvlink.is_boolean() && gpus > 1) pcie_only = !nvlink.get<bool>();
  const bool rdma =
      is("inter_link", "infiniband") || is("inter_link", "roce-v1") || is("inter_link", "roce-v2");
  const auto intra = intra_rate(facts, all.at("intra_link").value.get<std::string>());
  const auto inter = inter_rate(all.at("inter_tier").value.get<std::string>());
  const auto ratio = intra_over_inter(intra, inter);
  const bool ina =
      is("ina", "sharp") || all.at("ina").value.get<std::string>().starts_with("declared:");
  return json{
      {"is_cross_container",
       where.starts_with("cross-") || (where == "singularity" && is_apart(hosts, "mnt"))},
      {"is_singularity", where == "singularity"},
      {"is_bare_metal", where == "bare-metal"},
      {"container_runtime", ordinal},
      {"has_nvlink", nvlink},
      {"is_pcie_only_intra", pcie_only},
      {"kernel_bypass", rdma},
      {"gpudirect_rdma", rdma && uses_gpu(context.backend) ? gpudirect(hosts) : json(false)},
      {"is_ina_active", ina},
      {"intra_bytes_per_s", intra ? json(intra->bytes_per_s) : json()},
      {"inter_bytes_per_s", inter ? json(inter->bytes_per_s) : json()},
      {"intra_over_inter", ratio ? json(*ratio) : json()},
      {"is_flat_interconnect", ratio ? json(*ratio < kFlatBelow) : json()},
      {"shared_memory_between_ranks", !is_apart(hosts, "shm")},
      {"cluster_class", nvlink == true || rdma ? "specialised" : "commodity"}};
}

json places_of_pairs(const std::vector<json>& facts, const RegimeContext& context) {
  std::vector<RankPlace> ranks;
  for (std::size_t i = 0; i < facts.size(); ++i)
    ranks.push_back({context.nodes.size() == facts.size()
                         ? context.nodes[i]
                         : fact_text(facts[i], "system", "boot_id"),
                     facts[i]});
  return to_json(pair_places(ranks, context.places));
}

json declared_details(const RegimeContext& context) {
  json declared = json::object();
  if (!context.declared_topology.empty()) declared["topology"] = context.declared_topology;
  if (!context.declared_deployment.empty()) declared["deployment"] = context.declared_deployment;
  return declared;
}

/// What ranks were given of [machine] stands in for what the context does not say.
RegimeContext with_told(RegimeContext context, const std::vector<json>& facts_of_ranks) {
  if (facts_of_ranks.empty()) return context;
  const auto& first = facts_of_ranks.front();
  const auto told = [&](std::string& known, const char* name) {
    if (known.empty()) known = fact_text(first, "declared", name);
  };
  told(context.declared_topology, "topology");
  told(context.declared_deployment, "deployment");
  told(context.declared_aggregation, "aggregation");
  return context;
}

}  // namespace

const std::vector<std::string>& regime_ingredients() {
  static const std::vector<std::string> kNames{
      "library", "boundary",   "intra_link",  "apart", "inter_link",
      "ina",     "inter_tier", "single_copy", "gpu",   "small_shm"};
  return kNames;
}

Regime derive_regime(const std::vector<json>& facts_of_ranks, const RegimeContext& given) {
  const RegimeContext context = with_told(given, facts_of_ranks);
  const HostGroups hosts = ranks_by_host(facts_of_ranks);
  const DetectedInterLink outside = inter_link(facts_of_ranks, context);
  const std::map<std::string, Ingredient> all{
      {"library",
       {std::string(name_of(context.backend)) + "-" + major_minor(context.library_version),
        "loaded library version " + clean_text(context.library_version, 80)}},
      {"boundary", boundary(hosts)},
      {"intra_link", intra_link(hosts, context)},
      {"apart", apart(hosts)},
      {"inter_link", outside.link},
      {"inter_tier", outside.tier},
      {"ina", in_network_aggregation(facts_of_ranks, context)},
      {"single_copy", single_copy(hosts)},
      {"gpu", gpu_mode(hosts, context)},
      {"small_shm", small_shm(hosts)}};
  json ingredients = json::object();
  json evidence = json::object();
  for (const auto& [name, ingredient] : all) {
    ingredients[name] = ingredient.value;
    evidence[name] = ingredient.evidence;
  }
  Regime regime;
  regime.id = stable_id("regime 1 " + ingredients.dump());
  const std::string one_host = one_host_by(hosts, context);
  regime.name = readable_name(all, one_host);
  regime.json = {{"schema", 1},
                 {"ingredients", std::move(ingredients)},
                 {"evidence", std::move(evidence)},
                 {"features", features(facts_of_ranks, hosts, context, all)},
                 {"pairs", places_of_pairs(facts_of_ranks, context)}};
  if (!one_host.empty()) regime.json["one_host"] = one_host;
  if (auto declared = declared_details(context); !declared.empty())
    regime.json["declared"] = std::move(declared);
  return regime;
}

namespace {

using nlohmann::json;

std::string shown(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> differences(const json& wanted, const json& known) {
  std::vector<std::string> names;
  for (const std::string& name : regime_ingredients())
    if (fact(wanted, "ingredients", name.c_str()) != fact(known, "ingredients", name.c_str()))
      names.push_back(name);
  return names;
}

/// Among equally many differences the ones that stand later in the list are the smaller harm.
bool nearer(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  if (a.size() != b.size()) return a.size() < b.size();
  const auto& order = regime_ingredients();
  const auto rank = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return rank(a[i]) > rank(b[i]);
  return false;
}

}  // namespace

std::optional<RegimeMatch> match_regime(const json& wanted, const std::vector<json>& known) {
  std::optional<RegimeMatch> best;
  for (std::size_t i = 0; i < known.size(); ++i) {
    auto differing = differences(wanted, known[i]);
    if (best && !nearer(differing, best->differing)) continue;
    best = RegimeMatch{i, differing.empty(), std::move(differing), ""};
  }
  if (!best) return best;
  if (best->exact) {
    best->text = "exact";
    return best;
  }
  std::vector<std::string> parts;
  for (const std::string& name : best->differing)
    parts.push_back(name + " (" + shown(fact(known[best->index], "ingredients", name.c_str())) +
                    ", wanted " + shown(fact(wanted, "ingredients", name.c_str())) + ")");
  best->text = "nearest: differs in " + join(parts, ", ");
  return best;
}

}  // namespace dynamiccl
