#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What the kernel has counted at one network interface, or a device's port counted itself.
struct InterfaceCounts {
  std::uint64_t rx_bytes = 0;
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_drops = 0;
  std::uint64_t rx_errors = 0;
  std::uint64_t tx_bytes = 0;
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_drops = 0;
  std::uint64_t tx_errors = 0;
  InterfaceCounts& operator+=(const InterfaceCounts& other);
};

/// By name: "eth0" of this process's network namespace, "mlx5_0/1" of an RDMA device's port.
using NetworkCounts = std::map<std::string, InterfaceCounts>;

/// Everyone who shares the network namespace, or the device, is counted. What cannot be read is
/// left out. Sources: Linux, net/core/net-procfs.c (/proc/net/dev has the counters of
/// /sys/class/net/*/statistics, of the reader's namespace, whichever /sys a container has);
/// Documentation/ABI/stable/sysfs-class-infiniband (port_*_data in units of 4 bytes).
/// @param interfaces the file of the kernel's table
/// @param devices folder with one folder per RDMA device
NetworkCounts network_counts(const std::string& interfaces = "/proc/self/net/dev",
                             const std::string& devices = "/sys/class/infiniband");

/// What passed meanwhile; interfaces at which nothing did are left out, and so are those whose
/// counters were begun anew.
NetworkCounts passed_between(const NetworkCounts& before, const NetworkCounts& after);

/// {"eth0": {"rx_bytes": ..., ...}, ...}
nlohmann::json to_json(const NetworkCounts& counts);

}  // namespace dynamiccl
