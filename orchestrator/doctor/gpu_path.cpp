#include "orchestrator/doctor/gpu_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/doctor/fixes.hpp"
#include "profiles/detect/fact_access.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "tuner/export/one_host.hpp"

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

/// Do its ranks load the library that makes them one host, and name it a folder?
bool has_one_host_library(const EnvironmentProfile& profile) {
  return preloads_one_host(nccl_setting(profile, "LD_PRELOAD")) &&
         !nccl_setting(profile, kOneHostFolder).empty();
}

/// What separates the ranks, as NCCL sees it.
class Separation {
 public:
  explicit Separation(const EnvironmentProfile& profile)
      : profile_(profile), library_(has_one_host_library(profile)) {}

  [[nodiscard]] bool one_container() const {
    return profile_.kind == EnvironmentKind::bare_metal || profile_.ranks_per_container == 0;
  }
  /// A container that joins another's network gets its host name too.
  [[nodiscard]] bool host_names_differ() const {
    return !one_container() && !library_ && profile_.uts == Sharing::private_ &&
           profile_.network != Sharing::shared && nccl_setting(profile_, "NCCL_HOSTID").empty();
  }
  [[nodiscard]] bool shm_apart() const {
    const bool engine = profile_.kind == EnvironmentKind::single_docker ||
                        profile_.kind == EnvironmentKind::cross_docker;
    return engine && !one_container() && !library_ && profile_.ipc == Sharing::private_ &&
           profile_.shared_tmpfs != kDevShm;
  }
  [[nodiscard]] bool network_apart() const {
    return !one_container() && !library_ && profile_.network == Sharing::private_;
  }
  /// Ranks that use one container's /dev/shm, and how much it holds; nullopt: the machine's own.
  [[nodiscard]] std::optional<Bytes> shm_size() const {
    const bool engine = profile_.kind == EnvironmentKind::single_docker ||
                        profile_.kind == EnvironmentKind::cross_docker;
    // A shared folder is as large as the machine's own.
    if (!engine || library_ || profile_.ipc == Sharing::host || profile_.shared_tmpfs == kDevShm)
      return std::nullopt;
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
  /// NCCL tries P2P with peers that it takes for its host's, whether their GPUs are visible or not;
  /// the library forbids it where they are not.
  [[nodiscard]] bool tries_peers() const {
    return nccl_setting(profile_, "NCCL_P2P_DISABLE") != "1" && !(library_ && peers_hidden());
  }

 private:
  static constexpr const char* kDevShm = "/dev/shm";
  const EnvironmentProfile& profile_;
  bool library_;
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
                         "a container sees its own GPU only, so that mapping a peer's memory fails "
                         "(CUDA error 101)",
                         "all GPUs visible (--gpus all, or --device /dev/nvidiaN of each), one per "
                         "rank chosen by CUDA_VISIBLE_DEVICES inside"});
  const bool handles = nccl_setting(profile, "NCCL_CUMEM_ENABLE") != "0";
  if (apart.network_apart() && handles)
    obstacles.push_back({"network namespace",
                         "cuMem handles are passed over abstract UNIX sockets, which end at a "
                         "network namespace, unless a library lays them into a shared folder",
                         "--network=host (or --network=container:FIRST; or the library of "
                         "docs/one-host.md)"});
  if (apart.network_apart() && !handles)
    obstacles.push_back({"CUDA IPC",
                         "without cuMem handles NCCL takes CUDA's own IPC, which fails between "
                         "such containers (\"invalid device context\")",
                         "leave NCCL_CUMEM_ENABLE unset"});
  if (nccl_setting(profile, "NCCL_P2P_DISABLE") == "1")
    // Alone, with peers hidden, it would end NCCL: it tries what it takes for its host's GPUs.
    obstacles.push_back({"settings", "NCCL_P2P_DISABLE=1",
                         apart.peers_hidden()
                             ? "leave NCCL_P2P_DISABLE unset once all GPUs are visible"
                             : "leave NCCL_P2P_DISABLE unset"});
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
  if (!host.empty()) return GpuPath::net;
  if (peer.empty()) return GpuPath::p2p;
  // One host for NCCL, yet a peer's memory cannot be had: it fails instead of falling back
  // (cuMemImportFromShareableHandle, error 101).
  if (apart.tries_peers() && (apart.network_apart() || apart.peers_hidden()))
    return GpuPath::impossible;
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
  const auto drop = [&](const char* name) {
    profile.environment.erase(name);
    drop_setting(profile, Backend::nccl, SettingScope::env, name);
  };
  // What else is preloaded is the user's own.
  if (has_one_host_library(profile)) drop("LD_PRELOAD");
  for (const char* name : {"NCCL_HOSTID", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE",
                           "NCCL_CUMEM_HOST_ENABLE", "NCCL_WIN_ENABLE", kOneHostFolder})
    drop(name);
  profile.shared_tmpfs.clear();
  return profile;
}

OneHostWay one_host_way(const EnvironmentProfile& profile) {
  return profile.gpus == GpuVisibility::all ? OneHostWay::library : OneHostWay::settings;
}

EnvironmentProfile with_one_host(EnvironmentProfile profile) {
  constexpr const char* kReason = "isolated ranks of one machine as one host (docs/one-host.md)";
  const auto put = [&](const std::string& name, const std::string& value) {
    put_setting(profile, Backend::nccl, {{SettingScope::env, name, value}, kReason});
  };
  if (one_host_way(profile) == OneHostWay::library) {
    profile.shared_tmpfs = kUsualFolder;
    for (const auto& [name, value] :
         one_host_library("{program_folder}/" + std::string(kOneHostLibrary), kUsualFolder))
      put(name, value);
    return profile;
  }
  profile.shm_size = Bytes(0);
  profile.shared_tmpfs = "/dev/shm";
  for (const auto& [name, value] : one_host_settings()) put(name, value);
  return profile;
}

}  // namespace dynamiccl
