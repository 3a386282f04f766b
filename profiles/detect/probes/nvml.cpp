#include "profiles/detect/probes/nvml.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/vocabulary/digest.hpp"
#include "profiles/detect/probes/nvml_library.hpp"

namespace dynamiccl {
namespace {

constexpr unsigned kMaxDevices = 16;
constexpr unsigned kMaxLinks = 36;

using nvml::Device;
using nvml::kSuccess;
using nvml::MemoryInfo;
using nvml::Nvml;

constexpr int kEnabled = 1;
constexpr int kP2pRead = 0;    // NVML_P2P_CAPS_INDEX_READ
constexpr int kP2pNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kRemoteGpu = 0;  // NVML_NVLINK_DEVICE_TYPE_GPU
constexpr int kRemoteSwitch = 2;
constexpr unsigned kFieldNvlinkSpeedCommon = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr unsigned kFieldNvlinkGetSpeed = 164;    // NVML_FI_DEV_NVLINK_GET_SPEED, scope: link

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  unsigned type;
  int status;
  union {
    double real;
    unsigned whole;
    unsigned long long large;
  } value;
};
struct FabricInfo {
  unsigned version;
  unsigned char cluster_uuid[16];
  int status;
  unsigned clique, state, health;
};
constexpr unsigned kFabricInfoVersion = 0x02000024;  // nvmlGpuFabricInfo_v2
static_assert(sizeof(FabricInfo) == 0x24);

void describe_identity(const Nvml& nvml, Device device, Section& section) {
  char text[96] = {};
  const auto set_text = [&](const char* key, const char* function) {
    text[0] = '\0';
    if (nvml.get(function, device, static_cast<char*>(text), static_cast<unsigned>(sizeof text)))
      section.set(key, std::string(text, strnlen(text, sizeof text)));
    else
      section.unknown(key, nvml::kRefused);
  };
  set_text("name", "nvmlDeviceGetName");
  set_text("uuid", "nvmlDeviceGetUUID");
  PciInfo pci{};
  if (nvml.get("nvmlDeviceGetPciInfo_v3", device, &pci))
    section.set("pci", std::string(pci.bus_id, strnlen(pci.bus_id, sizeof pci.bus_id)));
  else
    section.unknown("pci", nvml::kRefused);
  MemoryInfo memory{};
  if (nvml.get("nvmlDeviceGetMemoryInfo", device, &memory))
    section.set("memory_bytes", memory.total);
  else
    section.unknown("memory_bytes", nvml::kRefused);
}

void describe_mode(const Nvml& nvml, Device device, Section& section) {
  unsigned current = 0;
  unsigned pending = 0;
  if (nvml.get("nvmlDeviceGetMigMode", device, &current, &pending))
    section.set("mig", current == 1);
  else
    section.unknown("mig", nvml::kRefused);
  const auto set_number = [&](const char* key, const char* function) {
    unsigned value = 0;
    if (nvml.get(function, device, &value))
      section.set(key, value);
    else
      section.unknown(key, nvml::kRefused);
  };
  // 0 default (shared), 2 prohibited, 3 one process.
  set_number("compute_mode", "nvmlDeviceGetComputeMode");
  set_number("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration");
  set_number("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth");
}

/// nvmlNvlinkVersion_t.
Known<std::string> nvlink_version(const Nvml& nvml, Device device, unsigned link) {
  constexpr std::array kVersions{"", "1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0"};
  unsigned version = 0;
  if (!nvml.get("nvmlDeviceGetNvLinkVersion", device, link, &version) || version == 0)
    return Known<std::string>::unknown(nvml::kRefused);
  if (version >= kVersions.size())
    return Known<std::string>::unknown("newer than 5.0 (NVML value " + std::to_string(version) +
                                       ")");
  return {kVersions[version], ""};
}

/// Megabytes per second of one link in one direction: Hopper answers per link only, older GPUs for
/// all links in common only.
Known<unsigned> nvlink_speed(const Nvml& nvml, Device device, unsigned link) {
  for (const unsigned field : {kFieldNvlinkGetSpeed, kFieldNvlinkSpeedCommon}) {
    FieldValue speed{};
    speed.field = field;
    speed.scope = field == kFieldNvlinkGetSpeed ? link : 0;
    if (nvml.get("nvmlDeviceGetFieldValues", device, 1, &speed) && speed.status == kSuccess &&
        speed.value.whole > 0)
      return {speed.value.whole, ""};
  }
  return Known<unsigned>::unknown(nvml::kRefused);
}

void describe_nvlinks(const Nvml& nvml, Device device, Section& section) {
  int active = 0;
  unsigned first = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    int state = 0;
    // An error past the last link, or at once where the GPU has none.
    if (!nvml.get("nvmlDeviceGetNvLinkState", device, link, &state)) break;
    if (state == kEnabled && active++ == 0) first = link;
  }
  section.set("nvlinks_active", active);
  if (active == 0) return;
  // Each of these calls reaches the driver: one link speaks for all.
  section.set("nvlink_version", nvlink_version(nvml, device, first));
  section.set("nvlink_mbyte_per_s", nvlink_speed(nvml, device, first));
  int remote = -1;
  if (!nvml.get("nvmlDeviceGetNvLinkRemoteDeviceType", device, first, &remote)) remote = -1;
  if (remote == kRemoteGpu || remote == kRemoteSwitch)
    section.set("nvlink_remote", remote == kRemoteSwitch ? "switch" : "gpu");
  else
    section.unknown("nvlink_remote", nvml::kRefused);
}

void describe_fabric(const Nvml& nvml, Device device, Section& section) {
  FabricInfo info{};
  info.version = kFabricInfoVersion;
  constexpr unsigned kCompleted = 3;
  if (!nvml.get("nvmlDeviceGetGpuFabricInfoV", device, &info))
    return section.unknown("fabric", nvml::kRefused);
  const bool cluster = std::any_of(std::begin(info.cluster_uuid), std::end(info.cluster_uuid),
                                   [](unsigned char byte) { return byte != 0; });
  // The id itself is the machines' own: what counts is whether two nodes have the same.
  const std::string uuid(std::begin(info.cluster_uuid), std::end(info.cluster_uuid));
  section.set("fabric", nlohmann::json{{"state", info.state},
                                       {"ready", info.state == kCompleted && info.status == 0},
                                       {"clique", info.clique},
                                       {"cluster", stable_id(uuid)},
                                       {"multi_node", cluster}});
}

/// How one GPU reaches another's memory; "none" means through host memory.
std::string peer_path(const Nvml& nvml, Device from, Device to) {
  int status = -1;
  if (nvml.get("nvmlDeviceGetP2PStatus", from, to, kP2pNvlink, &status) && status == 0)
    return "nvlink";
  if (!nvml.get("nvmlDeviceGetP2PStatus", from, to, kP2pRead, &status)) return "unknown";
  return status == 0 ? "pcie" : "none";
}

nlohmann::json peer_paths(const Nvml& nvml, const std::vector<Device>& devices) {
  nlohmann::json rows = nlohmann::json::array();
  for (Device from : devices) {
    nlohmann::json row = nlohmann::json::array();
    for (Device to : devices) row.push_back(from == to ? "self" : peer_path(nvml, from, to));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Known<nlohmann::json> read_gpus_by_nvml() {
  using Result = Known<nlohmann::json>;
  std::string reason;
  const auto nvml = Nvml::open(reason);
  if (!nvml) return Result::unknown(clean_text(reason, 300));
  unsigned count = 0;
  if (!nvml->get("nvmlDeviceGetCount_v2", &count))
    return Result::unknown("nvmlDeviceGetCount_v2 failed");
  Section section;
  char driver[96] = {};
  if (nvml->get("nvmlSystemGetDriverVersion", static_cast<char*>(driver),
                static_cast<unsigned>(sizeof driver)))
    section.set("driver_version", std::string(driver, strnlen(driver, sizeof driver)));
  int cuda = 0;
  if (nvml->get("nvmlSystemGetCudaDriverVersion_v2", &cuda))
    section.set("cuda_driver_version",
                std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10));
  std::vector<Device> devices;
  nlohmann::json described = nlohmann::json::array();
  for (unsigned i = 0; i < std::min(count, kMaxDevices); ++i) {
    Device device = nullptr;
    if (!nvml->get("nvmlDeviceGetHandleByIndex_v2", i, &device)) continue;
    devices.push_back(device);
    Section gpu;
    describe_identity(*nvml, device, gpu);
    describe_mode(*nvml, device, gpu);
    describe_nvlinks(*nvml, device, gpu);
    describe_fabric(*nvml, device, gpu);
    described.push_back(std::move(gpu).take());
  }
  section.set("count", count);
  section.set("devices", described);
  section.set("p2p", peer_paths(*nvml, devices));
  return {std::move(section).take(), ""};
}

}  // namespace dynamiccl
