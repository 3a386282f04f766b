#pragma once

#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// What dockerd changes of a machine's network and leaves behind when it ends: its bridge docker0,
/// its chains in the firewall, IP forwarding, and with that the policy of forwarded packets.
struct NetworkState {
  std::vector<std::string> links;            ///< names of the network interfaces
  bool forwards = false;                     ///< net.ipv4.ip_forward
  std::map<std::string, std::string> rules;  ///< "iptables", "ip6tables" -> its NAME-save
};

/// The state in this process's network namespace; what cannot be read is left empty.
NetworkState look_at_network();

/// For NAME-restore --noflush: takes back what Docker has added since `before`, "" when that is
/// nothing. Rules of others stay, old or new.
/// @param before,after what NAME-save printed
/// @param policy also give the FORWARD chain its policy of `before`
std::string undo_firewall(const std::string& before, const std::string& after, bool policy);

/// True for names that Docker gives its bridges: docker0 and br-<12 hexadecimal digits>.
bool is_docker_bridge(const std::string& link);

/// Writes the state to `file` unless it holds one of this boot already.
void note_network(const std::string& file);

/// Brings the network back to the state noted in `file` as far as Docker has changed it, and
/// removes the file. Only while no dockerd runs here: its bridges look the same.
/// @returns one line per thing taken back
std::vector<std::string> restore_network(const std::string& file);

}  // namespace dynamiccl
