#include <algorithm>
#include <array>
#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxFolders = 64;
constexpr std::size_t kMaxPluginBytes = std::size_t{8} << 20;

constexpr std::array kLibraryFolders{"/usr/lib/x86_64-linux-gnu",
                                     "/usr/lib/aarch64-linux-gnu",
                                     "/usr/lib64",
                                     "/usr/lib",
                                     "/usr/local/lib",
                                     "/opt/mellanox/sharp/lib",
                                     "/opt/mellanox/hcoll/lib",
                                     "/opt/hpcx/sharp/lib",
                                     "/opt/hpcx/nccl_rdma_sharp_plugin/lib"};

std::string variable(const LiveSystem& live, std::string_view wanted) {
  if (const auto all = live.environment())
    for (const auto& [name, value] : *all)
      if (name == wanted) return value;
  return "";
}

std::vector<std::string> library_folders(const LiveSystem& live) {
  std::vector<std::string> folders;
  for (const std::string& folder : split(variable(live, "LD_LIBRARY_PATH"), ':'))
    if (folder.starts_with('/') && folders.size() < kMaxFolders) folders.push_back(folder);
  folders.insert(folders.end(), kLibraryFolders.begin(), kLibraryFolders.end());
  return folders;
}

struct SharpParts {
  std::set<std::string> sharp_libraries;
  std::set<std::string> collnet_plugins;
};

/// Looked up by name, not by listing: library folders hold thousands of files.
SharpParts find_parts(const ProbeContext& context) {
  SharpParts parts;
  std::vector<std::string> plugins{"libnccl-net.so"};
  if (const std::string name = variable(context.live, "NCCL_NET_PLUGIN"); !name.empty()) {
    plugins.push_back(name);
    plugins.push_back("libnccl-net-" + name + ".so");
  }
  for (const std::string& folder : library_folders(context.live)) {
    for (const char* name : {"libsharp.so", "libsharp_coll.so"})
      if (context.root.exists(folder + "/" + name))
        parts.sharp_libraries.insert(folder + "/" + name);
    for (const std::string& name : plugins) {
      const std::string path = name.starts_with('/') ? name : folder + "/" + name;
      const auto bytes = context.root.text(path, kMaxPluginBytes);
      if (bytes && bytes->find("ncclCollNetPlugin_v") != std::string::npos)
        parts.collnet_plugins.insert(path);
    }
  }
  return parts;
}

bool infiniband_active(const ProbeRoot& root) {
  for (const std::string& device : root.list("/sys/class/infiniband", 32)) {
    const std::string ports = "/sys/class/infiniband/" + device + "/ports";
    for (const std::string& port : root.list(ports, 8)) {
      const std::string folder = ports + "/" + port;
      const auto state = root.line(folder + "/state");
      const auto layer = root.line(folder + "/link_layer");
      if (layer && *layer == "InfiniBand" && state && state->find("ACTIVE") != std::string::npos)
        return true;
    }
  }
  return false;
}

/// CollNet runs when it is asked for, its plugin is there and the fabric is InfiniBand; whether the
/// switch grants the group, only NCCL's own log says.
void probe_sharp(const ProbeContext& context, Section& section) {
  const SharpParts parts = find_parts(context);
  section.set("sharp_libraries", parts.sharp_libraries);
  section.set("collnet_plugins", parts.collnet_plugins);
  const bool fabric = infiniband_active(context.root);
  const bool asked = variable(context.live, "NCCL_COLLNET_ENABLE") == "1";
  section.set("collnet_requested", asked);
  if (parts.collnet_plugins.empty() || !fabric)
    section.set("collnet_possible", false);
  else
    section.set("collnet_possible", true);
}

void probe_nvls(const ProbeContext& context, Section& section) {
  const std::string setting = variable(context.live, "NCCL_NVLS_ENABLE");
  section.set("nvls_setting", setting.empty() ? std::string("default") : setting);
}

}  // namespace

nlohmann::json probe_aggregation(const ProbeContext& context) {
  Section section;
  probe_sharp(context, section);
  probe_nvls(context, section);
  const auto declare = [&](const char* key, const std::string& value) {
    if (value.empty())
      section.unknown(key, "not declared");
    else
      section.set(key, nlohmann::json{{"value", clean_text(value, 80)}, {"how", "declared"}});
  };
  declare("declared_aggregation", context.declared.aggregation);
  declare("declared_topology", context.declared.topology);
  declare("declared_setting", context.declared.setting);
  return std::move(section).take();
}

}  // namespace dynamiccl
