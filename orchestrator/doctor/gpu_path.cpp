#include "orchestrator/doctor/gpu_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "profiles/detect/fact_access.hpp"
#include "tuner/export/folder_network.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

std::string nccl_setting(const EnvironmentProfile& profile, const std::string& name) {
  std::string value;
  if (const auto found = profile.environment.find(name); found != profile.environment.end())
    value = found->second;
  if (const auto settings = profile.backend_settings.find(Backend::nccl);
      settings != profile.backend_settings.end())
    for (const auto& setting : settings->second)
      if (setting.scope == SettingScope::env && setting.name == name) value = setting.value;
  return value;
}

int gpus_of(const json& machine) {
  for (const char* key : {"usable", "on_bus_nvidia"})
    if (const auto count = whole_number<int>(fact(machine, "gpu", key)).value_or(0); count > 0)
      return count;
  return 0;
}

/// How NVML says the GPUs reach each other: "nvlink", "pcie", "none" or "unknown".
std::string peer_link(const json& machine) {
  std::set<std::string> paths;
  const json& nvml = fact(machine, "gpu", "nvml");
  if (nvml.is_object() && nvml.contains("p2p") && nvml["p2p"].is_array())
    for (const json& row : nvml["p2p"])
      if (row.is_array())
        for (const json& path : row)
          if (path.is_string()) paths.insert(path.get<std::string>());
  for (const char* link : {"nvlink", "pcie", "none"})
    if (paths.contains(link)) return link;
  return fact(machine, "gpu", "nvlink") == true ? "nvlink" : "unknown";
}

/// What separates the ranks, as NCCL sees it.
class Separation {
 public:
  explicit Separation(const EnvironmentProfile& profile) : profile_(profile) {}

  [[nodiscard]] bool one_container() const {
    return profile_.kind == EnvironmentKind::bare_metal || profile_.ranks_per_container == 0;
  }
  /// A container that joins another's network gets its host name too.
  [[nodiscard]] bool host_names_differ() const {
    return !one_container() && profile_.uts == Sharing::private_ &&
           profile_.network != Sharing::shared && nccl_setting(profile_, "NCCL_HOSTID").empty();
  }
  [[nodiscard]] bool shm_apart() const {
    const bool engine = profile_.kind == EnvironmentKind::single_docker ||
                        profile_.kind == EnvironmentKind::cross_docker;
    return engine && !one_container() && profile_.ipc == Sharing::private_;
  }
  [[nodiscard]] bool network_apart() const {
    return !one_container() && profile_.network == Sharing::private_;
  }
  /// Ranks that use one container's /dev/shm, and how much it holds; nullopt: the machine's own.
  [[nodiscard]] std::optional<Bytes> shm_size() const {
    const bool engine = profile_.kind == EnvironmentKind::single_docker ||
                        profile_.kind == EnvironmentKind::cross_docker;
    if (!engine || profile_.ipc == Sharing::host) return std::nullopt;
    constexpr Bytes kEngineDefault{std::uint64_t{64} << 20};
    return profile_.shm_size.count() == 0 ? kEngineDefault : profile_.shm_size;
  }
  [[nodiscard]] int ranks_of_one_shm(int ranks) const {
    return one_container() || profile_.ipc != Sharing::private_
               ? ranks
               : std::min(ranks, profile_.ranks_per_container);
  }
  [[nodiscard]] bool peers_hidden() const {
    return !one_container() && profile_.gpus == GpuVisibility::one_per_rank;
  }

 private:
  const EnvironmentProfile& profile_;
};

void find_host_obstacles(const EnvironmentProfile& profile, const Separation& apart,
                         std::vector<GpuObstacle>& obstacles) {
  if (apart.host_names_differ())
    obstacles.push_back(
        {"host hash",
         "every container has a host name of its own, and NCCL hashes host name and boot id: it "
         "takes the containers for different machines",
         "--uts=host (or one host name, or one NCCL_HOSTID, for all containers of the machine)"});
  if (apart.shm_apart())
    obstacles.push_back(
        {"/dev/shm device",
         "every container has a /dev/shm of its own, and NCCL tries neither P2P nor "
         "SHM where its device differs",
         "--ipc=host (or --ipc=container:FIRST)"});
  if (nccl_setting(profile, "NCCL_SHM_DISABLE") == "1" &&
      nccl_setting(profile, "NCCL_P2P_DISABLE") == "1")
    obstacles.push_back({"settings", "NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1",
                         "leave NCCL_P2P_DISABLE and NCCL_SHM_DISABLE unset"});
}

void find_peer_obstacles(const EnvironmentProfile& profile, const Separation& apart,
                         const json& machine, std::vector<GpuObstacle>& obstacles) {
  if (apart.peers_hidden())
    obstacles.push_back({"GPU visibility",
                         "a container sees its own GPU only, so that its rank cannot map a peer's "
                         "memory",
                         "all GPUs visible (--gpus all, or --device /dev/nvidiaN of each), one per "
                         "rank chosen by CUDA_VISIBLE_DEVICES inside"});
  if (apart.network_apart() && nccl_setting(profile, "NCCL_CUMEM_ENABLE") != "0")
    obstacles.push_back({"network namespace",
                         "cuMem handles are passed over abstract UNIX sockets, which end at a "
                         "network namespace",
                         "--network=host (or --network=container:FIRST; or NCCL_CUMEM_ENABLE=0)"});
  if (nccl_setting(profile, "NCCL_P2P_DISABLE") == "1")
    obstacles.push_back({"settings", "NCCL_P2P_DISABLE=1", "leave NCCL_P2P_DISABLE unset"});
  if (peer_link(machine) == "none")
    obstacles.push_back({"peer access", "NVML says the GPUs have no peer access", ""});
}

void find_small_shm(const Separation& apart, int ranks, std::vector<GpuObstacle>& obstacles) {
  const auto size = apart.shm_size();
  const int sharing = apart.ranks_of_one_shm(ranks);
  const std::uint64_t needed = static_cast<std::uint64_t>(std::max(sharing, 0)) * kNcclSegmentBytes;
  if (!size || size->count() >= needed) return;
  obstacles.push_back(
      {"/dev/shm size",
       fmt::format("{} ranks share a /dev/shm of {}, and NCCL makes a segment of {} bytes in it "
                   "for each rank that needs a proxy: {} MiB together; it gives up where one does "
                   "not fit (the size is of one version's error message; the least that suffices "
                   "was not measured)",
                   sharing, format_bytes(*size), kNcclSegmentBytes, (needed >> 20) + 1),
       "--shm-size 1g (shm_size = \"1GiB\"), or --ipc=host"});
}

GpuPath path_of(const EnvironmentProfile& profile, const Separation& apart,
                const std::vector<GpuObstacle>& host, const std::vector<GpuObstacle>& peer) {
  if (!host.empty())
    return nccl_setting(profile, "NCCL_NET_PLUGIN").empty() ||
                   nccl_setting(profile, "DYNAMICCL_SHARED_FOLDER").empty()
               ? GpuPath::net
               : GpuPath::folder;
  if (peer.empty()) return GpuPath::p2p;
  // One host for NCCL, yet handles cannot be passed: it fails instead of falling back
  // (cuMemImportFromShareableHandle, error 101).
  for (const auto& obstacle : peer)
    if (obstacle.what == "network namespace" && !apart.peers_hidden()) return GpuPath::impossible;
  return nccl_setting(profile, "NCCL_SHM_DISABLE") == "1" ? GpuPath::net : GpuPath::shm;
}

std::string summary_of(const GpuPrediction& prediction, int ranks) {
  switch (prediction.path) {
    case GpuPath::none:
      return "no prediction";
    case GpuPath::p2p:
      return fmt::format("{} ranks reach each other's GPU memory ({})", ranks, prediction.link);
    case GpuPath::shm:
      return "ranks stage through host memory";
    case GpuPath::folder:
      return "ranks of one machine copy through host memory that they hand each other in a folder";
    case GpuPath::net:
      return "ranks of one machine go through the network transport";
    case GpuPath::impossible:
      return "NCCL will give up";
  }
  return "";
}

}  // namespace

GpuPrediction predict_gpu_path(const EnvironmentProfile& profile, const json& machine, int ranks) {
  GpuPrediction prediction;
  const int gpus = gpus_of(machine);
  if (gpus == 0 || ranks < 2 || profile.gpus == GpuVisibility::none) {
    prediction.summary = gpus == 0   ? "the machine shows no GPU"
                         : ranks < 2 ? "one rank needs no transport"
                                     : "the profile shows its containers no GPU";
    return prediction;
  }
  if (ranks > gpus) {
    prediction.path = GpuPath::impossible;
    prediction.obstacles = {{"GPUs",
                             fmt::format("{} ranks on {} GPUs: NCCL refuses two ranks of one "
                                         "communicator on one GPU (\"Duplicate GPU detected\")",
                                         ranks, gpus),
                             fmt::format("at most {} ranks", gpus)}};
    prediction.summary = "NCCL will give up";
    return prediction;
  }
  const Separation apart(profile);
  std::vector<GpuObstacle> host;
  std::vector<GpuObstacle> peer;
  find_host_obstacles(profile, apart, host);
  find_peer_obstacles(profile, apart, machine, peer);
  prediction.path = path_of(profile, apart, host, peer);
  prediction.obstacles = host;
  prediction.obstacles.insert(prediction.obstacles.end(), peer.begin(), peer.end());
  const auto known = prediction.obstacles.size();
  find_small_shm(apart, ranks, prediction.obstacles);
  if (prediction.obstacles.size() > known) prediction.path = GpuPath::impossible;
  if (prediction.path == GpuPath::p2p) prediction.link = peer_link(machine);
  prediction.summary = summary_of(prediction, ranks);
  return prediction;
}

bool shows_gpus(const EnvironmentProfile& profile, const json& machine) {
  return gpus_of(machine) > 0 && profile.gpus != GpuVisibility::none;
}

EnvironmentProfile with_gpu_path(EnvironmentProfile profile) {
  use_host_network(profile);
  use_host_ipc(profile);
  profile.uts = Sharing::host;
  profile.gpus = GpuVisibility::all;
  for (const char* name :
       {"NCCL_HOSTID", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET_PLUGIN", "NCCL_NET",
        "DYNAMICCL_SHARED_FOLDER", "NCCL_TUNER_PLUGIN", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}) {
    profile.environment.erase(name);
    drop_setting(profile, Backend::nccl, SettingScope::env, name);
  }
  return profile;
}

EnvironmentProfile with_shared_folder(EnvironmentProfile profile) {
  constexpr const char* kReason = "through a folder that isolated ranks share";
  const auto put = [&](const std::string& name, const std::string& value) {
    put_setting(profile, Backend::nccl, {{SettingScope::env, name, value}, kReason});
  };
  const std::string plugin = "{program_folder}/libdynamiccl-nccl-plugin.so";
  for (const auto& [name, value] : folder_network(plugin, "{run_folder}")) put(name, value);
  put("NCCL_TUNER_PLUGIN", plugin);
  put("NCCL_MIN_CTAS", kFolderChannels);
  put("NCCL_MAX_CTAS", kFolderChannels);
  return profile;
}

}  // namespace dynamiccl
