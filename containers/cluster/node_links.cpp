#include "containers/cluster/node_links.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Interfaces of a node that are up, without loopback.
std::vector<nlohmann::json> interfaces_up(const nlohmann::json& facts) {
  std::vector<nlohmann::json> up;
  const nlohmann::json::json_pointer place("/network/interfaces");
  if (!facts.is_object() || !facts.contains(place) || !facts.at(place).is_array()) return up;
  for (const auto& one : facts.at(place))
    if (one.is_object() && one.contains("name") && one["name"].is_string() &&
        one.value("up", nlohmann::json()) == true &&
        one.value("kind", nlohmann::json()) != "loopback")
      up.push_back(one);
  return up;
}

}  // namespace

std::string why_no_interface(const nlohmann::json& facts, const std::string& interface) {
  std::vector<std::string> names;
  for (const auto& one : interfaces_up(facts)) names.push_back(one["name"].get<std::string>());
  if (names.empty()) return "";
  for (const std::string& wanted : split(interface, ','))
    if (std::find(names.begin(), names.end(), wanted) == names.end())
      return fmt::format("has no network interface {} that is up (cluster.interface), but {}",
                         wanted, join(names, ", "));
  return "";
}

std::vector<std::string> links_of_node(const nlohmann::json& facts) {
  std::vector<std::string> links;
  std::vector<std::string> of_a_container;
  for (const auto& one : interfaces_up(facts)) {
    const auto kind = one.value("kind", nlohmann::json());
    const bool leads_out = kind == "ethernet" || kind == "ipoib" || kind == "bond";
    const auto addresses = one.value("addresses", nlohmann::json());
    // An engine's end of such a pair has no address, the container's has one.
    const bool end_of_pair = kind == "veth" && addresses.is_array() && !addresses.empty();
    if (!leads_out && !end_of_pair) continue;
    const auto tier = one.value("tier", nlohmann::json());
    const auto mtu = one.value("mtu_bytes", nlohmann::json());
    (leads_out ? links : of_a_container)
        .push_back(fmt::format("{} {}, mtu {}", one["name"].get<std::string>(),
                               tier.is_string() ? tier.get<std::string>() : "of unknown speed",
                               mtu.is_number() ? mtu.dump() : "unknown"));
  }
  return links.empty() ? of_a_container : links;
}

}  // namespace dynamiccl
