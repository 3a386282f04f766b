#include "profiles/detect/network_interface.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

std::string default_route_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::getline(routes, line);
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string name;
    std::string destination;
    if (fields >> name >> destination && destination == "00000000") return name;
  }
  return {};
}

/// The first interface with an IPv4 address that is up and `fits`; nullopt: none
template <class Fits>
std::optional<std::pair<std::string, in_addr>> first_interface(Fits fits) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if ((at->ifa_flags & IFF_UP) == 0 || at->ifa_addr == nullptr ||
        at->ifa_addr->sa_family != AF_INET || !fits(*at))
      continue;
    sockaddr_in address{};
    std::memcpy(&address, at->ifa_addr, sizeof(address));
    return std::pair{std::string(at->ifa_name), address.sin_addr};
  }
  return std::nullopt;
}

}  // namespace

std::string default_interface() {
  if (auto name = default_route_interface(); !name.empty()) return name;
  const auto real =
      first_interface([](const ifaddrs& one) { return (one.ifa_flags & IFF_LOOPBACK) == 0; });
  return real ? real->first : "lo";
}

std::string gloo_interface(const std::string& configured) {
  const char* list = std::getenv("GLOO_SOCKET_IFNAME");
  if (list == nullptr || *list == '\0')
    return configured.empty() ? default_interface() : configured;
  auto names = split(list, ',');
  if (names.back().empty()) names.pop_back();  // as PyTorch reads "eth0,"
  for (const auto& name : names)
    if (!ipv4_address_of(name))
      throw Error(ErrorKind::environment,
                  fmt::format("GLOO_SOCKET_IFNAME = {}: \"{}\" is no interface that is up and has "
                              "an IPv4 address here; name one that is there ({})",
                              list, name, default_interface()));
  return names.front();
}

std::optional<in_addr> ipv4_address_of(const std::string& interface) {
  const auto found = first_interface([&](const ifaddrs& one) { return interface == one.ifa_name; });
  if (!found) return std::nullopt;
  return found->second;
}

std::map<unsigned, std::string> interfaces_by_index() {
  std::map<unsigned, std::string> names;
  const std::unique_ptr<struct if_nameindex, decltype(&if_freenameindex)> list(if_nameindex(),
                                                                               if_freenameindex);
  for (const auto* at = list.get(); at != nullptr && at->if_index != 0; ++at)
    names[at->if_index] = at->if_name;
  return names;
}

}  // namespace dynamiccl
