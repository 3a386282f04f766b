#include <algorithm>
#include <array>

#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMaxInterfaces = 64;
constexpr std::size_t kMaxAddresses = 16;

// linux/if_arp.h
constexpr std::int64_t kArpLoopback = 772;
constexpr std::int64_t kArpInfiniband = 32;

struct Tier {
  std::int64_t mbit;
  std::string_view name;
};
constexpr std::array kTiers{Tier{10, "10MbE"},      Tier{100, "100MbE"},    Tier{1000, "1GbE"},
                            Tier{2500, "2.5GbE"},   Tier{5000, "5GbE"},     Tier{10000, "10GbE"},
                            Tier{25000, "25GbE"},   Tier{40000, "40GbE"},   Tier{50000, "50GbE"},
                            Tier{100000, "100GbE"}, Tier{200000, "200GbE"}, Tier{400000, "400GbE"},
                            Tier{800000, "800GbE"}};

std::string kind_of(const ProbeRoot& root, const std::string& folder) {
  const auto type = root.integer(folder + "/type");
  if (type && *type == kArpLoopback) return "loopback";
  if (type && *type == kArpInfiniband) return "ipoib";
  if (root.exists(folder + "/bridge")) return "bridge";
  if (root.exists(folder + "/bonding")) return "bond";
  if (root.exists(folder + "/tun_flags")) return "tap";
  if (root.exists(folder + "/device")) return "ethernet";
  const auto link = root.integer(folder + "/iflink");
  const auto index = root.integer(folder + "/ifindex");
  // A veth's other end, or a VLAN's parent, has another index.
  if (link && index && *link != *index) return "veth";
  return "virtual";
}

/// "10GbE"; "virtual" for links that exist in memory only, whatever speed they claim (a veth
/// claims 10 Gbit/s).
Known<std::string> tier_of(const std::string& kind, const Known<std::int64_t>& speed) {
  if (kind == "veth" || kind == "tap" || kind == "bridge" || kind == "virtual")
    return {"virtual", ""};
  if (kind == "loopback") return {"loopback", ""};
  if (!speed) return Known<std::string>::unknown(speed.reason);
  for (const Tier& tier : kTiers)
    if (tier.mbit == *speed) return {std::string(tier.name), ""};
  return {std::to_string(*speed) + "Mbit/s", ""};
}

Known<std::int64_t> speed_of(const ProbeRoot& root, const std::string& folder) {
  auto speed = root.integer(folder + "/speed");
  if (speed && *speed <= 0)
    speed = Known<std::int64_t>::unknown("the driver does not say its speed");
  return speed;
}

void describe_link(const ProbeRoot& root, const std::string& name, Section& section) {
  const std::string folder = "/sys/class/net/" + name;
  const std::string kind = kind_of(root, folder);
  const auto speed = speed_of(root, folder);
  section.set("kind", kind);
  section.set("mtu_bytes", root.integer(folder + "/mtu"));
  section.set("state", root.line(folder + "/operstate"));
  section.set("speed_mbit_per_s", speed);
  section.set("tier", tier_of(kind, speed));
  if (!root.exists(folder + "/device")) return;
  section.set("driver", root.link_name(folder + "/device/driver"));
  section.set("numa_node", root.numa_node(folder + "/device/numa_node"));
}

nlohmann::json describe(const ProbeContext& context, const std::string& name,
                        const Known<std::vector<InterfaceAddresses>>& live) {
  const ProbeRoot& root = context.root;
  Section section;
  section.set("name", name);
  const InterfaceAddresses* found = nullptr;
  if (live)
    for (const InterfaceAddresses& candidate : *live)
      if (candidate.name == name) found = &candidate;
  if (found != nullptr) {
    auto addresses = found->addresses;
    addresses.resize(std::min(addresses.size(), kMaxAddresses));
    section.set("addresses", addresses);
    section.set("up", found->up);
  } else {
    section.unknown("addresses", live ? "getifaddrs does not list it" : live.reason);
    section.unknown("up", live ? "getifaddrs does not list it" : live.reason);
  }
  // With a /sys of another network namespace the same name means another link.
  const auto index = root.integer("/sys/class/net/" + name + "/ifindex");
  if (index && (found == nullptr || found->index == 0 || found->index == *index)) {
    describe_link(root, name, section);
    return std::move(section).take();
  }
  const std::string reason =
      index ? "/sys shows another network namespace" : "/sys/class/net does not list it";
  for (const char* key : {"mtu_bytes", "state", "speed_mbit_per_s", "tier"})
    section.unknown(key, reason);
  section.set("kind", std::string(name == "lo" ? "loopback" : "unknown"));
  return std::move(section).take();
}

/// Names in this process's own network namespace.
std::vector<std::string> interface_names(const ProbeContext& context,
                                         const Known<std::vector<InterfaceAddresses>>& live) {
  std::vector<std::string> names;
  if (live)
    for (const InterfaceAddresses& found : *live) names.push_back(found.name);
  if (names.empty()) {
    const auto table = context.root.text("/proc/self/net/dev");
    if (table)
      for (const std::string& line : split(*table, '\n'))
        if (const std::size_t colon = line.find(':'); colon != std::string::npos)
          names.emplace_back(trim(std::string_view(line).substr(0, colon)));
  }
  if (names.empty()) names = context.root.list("/sys/class/net", kMaxInterfaces);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

nlohmann::json probe_network(const ProbeContext& context) {
  Section section;
  const auto live = context.live.interfaces();
  const auto names = interface_names(context, live);
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& name : names)
    if (list.size() < kMaxInterfaces) list.push_back(describe(context, clean_text(name, 64), live));
  section.set("interfaces", list);
  if (names.size() > kMaxInterfaces)
    section.set("interfaces_left_out", names.size() - kMaxInterfaces);
  return std::move(section).take();
}

}  // namespace dynamiccl
