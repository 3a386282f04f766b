#include "workers/network_interface.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <fstream>
#include <memory>
#include <sstream>

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

std::string first_real_interface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const bool usable = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable && at->ifa_addr != nullptr && at->ifa_addr->sa_family == AF_INET)
      return at->ifa_name;
  }
  return {};
}

}  // namespace

std::string default_interface() {
  if (auto name = default_route_interface(); !name.empty()) return name;
  if (auto name = first_real_interface(); !name.empty()) return name;
  return "lo";
}

}  // namespace dynamiccl
