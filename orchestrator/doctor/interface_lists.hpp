#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// A network interface as a list of a library may name it.
struct NamedInterface {
  std::string name;                    ///< "docker0"
  std::vector<std::string> addresses;  ///< "172.17.0.1/16"
};

// How each library reads the setting that names the interfaces it may use.

/// Open MPI's btl_tcp_if_include and btl_tcp_if_exclude: names and IPv4 subnets ("172.17.0.0/16").
bool openmpi_list_names(const std::string& list, const NamedInterface& interface);

/// NCCL_SOCKET_IFNAME: beginnings of names, "=" before the list for whole names, "^" before it for
/// all interfaces but those. One that is too short to be taken lets NCCL choose, which leaves
/// docker0 for last.
bool nccl_list_admits(const std::string& list, const std::string& name);

/// GLOO_SOCKET_IFNAME and UCX_NET_DEVICES: whole names. Other UCX lists ("^lo", "all") name none.
bool plain_list_names(const std::string& list, const std::string& name);

}  // namespace dynamiccl
