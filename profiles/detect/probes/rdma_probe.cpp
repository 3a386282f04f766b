#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxDevices = 32;
constexpr std::size_t kMaxPorts = 8;
// The gid table has up to 256 entries; the types in use come first.
constexpr int kGidsLooked = 8;

/// "400 Gb/sec (4X NDR)" in Gbit/s.
Known<double> rate_gbit(const Known<std::string>& line) {
  if (!line) return Known<double>::unknown(line.reason);
  try {
    if (line->find("Gb/sec") != std::string::npos) return {std::stod(*line), ""};
  } catch (const std::exception&) {
  }
  return Known<double>::unknown("\"" + *line + "\" is no rate");
}

std::set<std::string> gid_types(const ProbeRoot& root, const std::string& port) {
  std::set<std::string> types;
  for (int i = 0; i < kGidsLooked; ++i)
    if (const auto type = root.line(port + "/gid_attrs/types/" + std::to_string(i)))
      types.insert(*type);
  return types;
}

/// What carries the verbs: "infiniband", "roce-v2", "roce-v1", or the link layer as it is.
Known<std::string> fabric_of(const Known<std::string>& layer, const std::set<std::string>& types) {
  if (!layer) return layer;
  if (*layer == "InfiniBand") return {"infiniband", ""};
  if (*layer != "Ethernet") return {*layer, ""};
  if (types.contains("RoCE v2")) return {"roce-v2", ""};
  if (types.contains("IB/RoCE v1")) return {"roce-v1", ""};
  return Known<std::string>::unknown("Ethernet link layer without RoCE gid types");
}

nlohmann::json describe_port(const ProbeRoot& root, const std::string& device,
                             const std::string& number) {
  const std::string port = "/sys/class/infiniband/" + device + "/ports/" + number;
  Section section;
  section.set("port", number);
  const auto layer = root.line(port + "/link_layer");
  const auto types = gid_types(root, port);
  section.set("link_layer", layer);
  section.set("fabric", fabric_of(layer, types));
  section.set("gid_types", types);
  // "4: ACTIVE"
  const auto state = root.line(port + "/state");
  section.set("state", state);
  if (state)
    section.set("active", state->find("ACTIVE") != std::string::npos);
  else
    section.unknown("active", state.reason);
  const auto rate = root.line(port + "/rate");
  section.set("rate", rate);
  section.set("rate_gbit_per_s", rate_gbit(rate));
  return std::move(section).take();
}

nlohmann::json describe_device(const ProbeRoot& root, const std::string& device) {
  const std::string folder = "/sys/class/infiniband/" + device;
  Section section;
  section.set("name", device);
  section.set("driver", root.link_name(folder + "/device/driver"));
  section.set("firmware", root.line(folder + "/fw_ver"));
  section.set("hca_type", root.line(folder + "/hca_type"));
  section.set("numa_node", root.numa_node(folder + "/device/numa_node"));
  nlohmann::json ports = nlohmann::json::array();
  for (const std::string& number : root.list(folder + "/ports", kMaxPorts))
    ports.push_back(describe_port(root, device, clean_text(number, 16)));
  section.set("ports", ports);
  return std::move(section).take();
}

void probe_gpu_direct(const ProbeRoot& root, Section& section) {
  const bool peer_memory =
      root.exists("/sys/module/nvidia_peermem") || root.exists("/sys/module/nv_peer_mem");
  section.set("gpudirect_peermem", peer_memory);
  // DMA-BUF export needs the open kernel modules (and Linux 5.12).
  const auto driver = root.text("/proc/driver/nvidia/version", 4096);
  if (driver)
    section.set("gpudirect_dmabuf_possible",
                driver->find("Open Kernel Module") != std::string::npos);
  else
    section.unknown("gpudirect_dmabuf_possible", "no NVIDIA driver: " + driver.reason);
}

}  // namespace

nlohmann::json probe_rdma(const ProbeContext& context) {
  const ProbeRoot& root = context.root;
  Section section;
  nlohmann::json devices = nlohmann::json::array();
  for (const std::string& name : root.list("/sys/class/infiniband", kMaxDevices))
    devices.push_back(describe_device(root, clean_text(name, 64)));
  section.set("devices", devices);
  // /sys shows the host's adapters to every container; only a device file lets a process use one.
  std::size_t verbs = 0;
  for (const std::string& name : root.list("/dev/infiniband"))
    if (name.starts_with("uverbs")) ++verbs;
  section.set("usable_devices", verbs);
  probe_gpu_direct(root, section);
  return std::move(section).take();
}

}  // namespace dynamiccl
