#pragma once

#include <netinet/in.h>

#include <map>
#include <optional>
#include <string>

namespace dynamiccl {

/// The interface a rank, or a node's probe, is reached by when nobody says which: the one of the
/// default route, else the first that is up and no loopback, else "lo".
std::string default_interface();

/// The interface of Gloo's connections: the first of those of GLOO_SOCKET_IFNAME, which PyTorch
/// takes in turn, else `configured`, else default_interface().
/// @throws Error(environment) where a word of the variable names no interface that is up and has an
///         IPv4 address: PyTorch would end of it
std::string gloo_interface(const std::string& configured);

/// The first IPv4 address of an interface that is up; nullopt: it has none, or there is no such.
std::optional<in_addr> ipv4_address_of(const std::string& interface);

/// Names by the kernel's index, which no other interface gets again.
std::map<unsigned, std::string> interfaces_by_index();

}  // namespace dynamiccl
