#include <algorithm>
#include <array>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxPciDevices = 4096;
constexpr std::size_t kMaxGpus = 64;
constexpr std::int64_t kNvidia = 0x10de;
constexpr std::int64_t kAmd = 0x1002;

struct PcieSpeed {
  std::string_view speed;
  int generation;
};
constexpr std::array kPcieSpeeds{PcieSpeed{"2.5", 1}, PcieSpeed{"5.0", 2},  PcieSpeed{"5 ", 2},
                                 PcieSpeed{"8.0", 3}, PcieSpeed{"8 ", 3},   PcieSpeed{"16.0", 4},
                                 PcieSpeed{"16 ", 4}, PcieSpeed{"32.0", 5}, PcieSpeed{"32 ", 5},
                                 PcieSpeed{"64.0", 6}};

/// "32.0 GT/s PCIe" as 5.
Known<int> generation(const Known<std::string>& speed) {
  if (!speed) return Known<int>::unknown(speed.reason);
  for (const PcieSpeed& known : kPcieSpeeds)
    if (speed->starts_with(known.speed)) return {known.generation, ""};
  return Known<int>::unknown("\"" + *speed + "\" is no PCIe speed");
}

struct PciScan {
  nlohmann::json gpus = nlohmann::json::array();
  std::size_t nvidia = 0;
  std::size_t amd = 0;
  std::size_t nvswitches = 0;
  bool readable = false;
};

nlohmann::json describe_gpu(const ProbeRoot& root, const std::string& address,
                            const std::string& vendor) {
  const std::string folder = "/sys/bus/pci/devices/" + address;
  Section section;
  section.set("pci", address);
  section.set("vendor", vendor);
  section.set("device_id", root.line(folder + "/device"));
  section.set("numa_node", root.numa_node(folder + "/numa_node"));
  section.set("pcie_generation", generation(root.line(folder + "/current_link_speed")));
  section.set("pcie_max_generation", generation(root.line(folder + "/max_link_speed")));
  section.set("pcie_width", root.integer(folder + "/current_link_width"));
  section.set("pcie_max_width", root.integer(folder + "/max_link_width"));
  const auto information = root.text("/proc/driver/nvidia/gpus/" + address + "/information", 4096);
  if (information) section.set("model", field_of(*information, "Model"));
  return std::move(section).take();
}

PciScan scan_pci(const ProbeRoot& root) {
  PciScan scan;
  scan.readable = root.exists("/sys/bus/pci/devices");
  for (const std::string& address : root.list("/sys/bus/pci/devices", kMaxPciDevices)) {
    const std::string folder = "/sys/bus/pci/devices/" + address;
    const auto vendor = root.integer(folder + "/vendor");
    if (!vendor || (*vendor != kNvidia && *vendor != kAmd)) continue;
    const auto pci_class = root.integer(folder + "/class");
    if (!pci_class) continue;
    // 0x0300: VGA, 0x0302: 3D controller, 0x0380: other display, 0x1200: accelerator,
    // 0x0680: other bridge (NVSwitch).
    const std::int64_t kind = *pci_class >> 8;
    const bool gpu = kind == 0x0300 || kind == 0x0302 || kind == 0x0380 || kind == 0x1200;
    if (*vendor == kNvidia && kind == 0x0680) ++scan.nvswitches;
    if (!gpu) continue;
    ++(*vendor == kNvidia ? scan.nvidia : scan.amd);
    if (scan.gpus.size() < kMaxGpus)
      scan.gpus.push_back(
          describe_gpu(root, clean_text(address, 32), *vendor == kNvidia ? "nvidia" : "amd"));
  }
  return scan;
}

/// Device files /dev/nvidia0, ...: what a process here may use, whatever the bus shows.
std::size_t usable_gpus(const ProbeRoot& root) {
  std::size_t count = 0;
  for (const std::string& name : root.list("/dev")) {
    constexpr std::string_view kPrefix = "nvidia";
    if (name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
        std::all_of(name.begin() + kPrefix.size(), name.end(),
                    [](char c) { return c >= '0' && c <= '9'; }))
      ++count;
  }
  return count;
}

bool mig_instances(const ProbeRoot& root) {
  const std::string folder = "/proc/driver/nvidia/capabilities";
  for (const std::string& gpu : root.list(folder, kMaxGpus))
    for (const std::string& name : root.list(folder + "/" + gpu + "/mig", kMaxGpus))
      if (name.starts_with("gi")) return true;
  return false;
}

bool mps_running(const ProbeContext& context) {
  std::string pipe = "/tmp/nvidia-mps";
  if (const auto variables = context.live.environment())
    for (const auto& [name, value] : *variables)
      if (name == "CUDA_MPS_PIPE_DIRECTORY") pipe = value;
  return context.root.exists(pipe + "/control");
}

/// The GPUs NVML described.
std::vector<nlohmann::json> nvml_devices(const Known<nlohmann::json>& nvml) {
  std::vector<nlohmann::json> devices;
  if (!nvml || !nvml->is_object() || !nvml->contains("devices")) return devices;
  for (const auto& device : nvml->at("devices"))
    if (device.is_object()) devices.push_back(device);
  return devices;
}

/// Dedicated, MIG or MPS. Time-slicing shows only when two ranks name the same GPU: derive_regime()
/// compares what they say of their own.
Known<std::string> sharing_mode(const ProbeContext& context, std::size_t usable,
                                const Known<nlohmann::json>& nvml) {
  if (usable == 0) return Known<std::string>::unknown("no usable GPU");
  bool mig = mig_instances(context.root);
  for (const auto& device : nvml_devices(nvml))
    mig = mig || device.value("mig", nlohmann::json()) == true;
  if (mig) return {"mig", ""};
  return {mps_running(context) ? "mps" : "dedicated", ""};
}

struct NvlinkState {
  Known<bool> present;
  std::string evidence;
};

NvlinkState nvlink_state(const PciScan& scan, const Known<nlohmann::json>& nvml) {
  if (nvml) {
    int active = 0;
    for (const auto& device : nvml_devices(nvml)) {
      active += whole_number<int>(device.value("nvlinks_active", nlohmann::json())).value_or(0);
    }
    return {{active > 0, ""}, "NVML: " + std::to_string(active) + " active links"};
  }
  if (scan.nvswitches > 0)
    return {{true, ""}, std::to_string(scan.nvswitches) + " NVSwitches on the PCI bus"};
  if (scan.readable && scan.nvidia < 2)
    return {{false, ""}, "fewer than two NVIDIA GPUs on the PCI bus"};
  return {Known<bool>::unknown("NVML tells it, but: " + nvml.reason), ""};
}

}  // namespace

nlohmann::json probe_gpu(const ProbeContext& context) {
  const ProbeRoot& root = context.root;
  const PciScan scan = scan_pci(root);
  const std::size_t usable = usable_gpus(root);
  Section section;
  section.set("usable", usable);
  if (scan.readable) {
    section.set("on_bus_nvidia", scan.nvidia);
    section.set("on_bus_amd", scan.amd);
    section.set("nvswitches", scan.nvswitches);
    section.set("devices", scan.gpus);
  } else {
    for (const char* key : {"on_bus_nvidia", "on_bus_amd", "nvswitches", "devices"})
      section.unknown(key, "/sys/bus/pci/devices is not there");
  }
  const bool driver = root.exists("/dev/nvidiactl");
  const auto nvml =
      driver ? context.live.gpus() : Known<nlohmann::json>::unknown("/dev/nvidiactl is not there");
  section.set("nvml", nvml);
  const auto version = root.line("/sys/module/nvidia/version");
  section.set("driver_version", version);
  const NvlinkState nvlink = nvlink_state(scan, nvml);
  section.set("nvlink", nvlink.present);
  if (nvlink.present) section.set("nvlink_evidence", nvlink.evidence);
  section.set("sharing_mode", sharing_mode(context, usable, nvml));
  section.set("imex_channels", root.list("/dev/nvidia-caps-imex-channels", kMaxGpus).size());
  return std::move(section).take();
}

}  // namespace dynamiccl
