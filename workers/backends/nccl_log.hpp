#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "workers/library_facts.hpp"

namespace dynamiccl {

/// What NCCL's own log (NCCL_DEBUG=INFO) tells of the connections it made.
struct NcclConnections {
  /// "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0", ... -> number of connections
  std::map<std::string, int> ways;
  /// (from, to) in NCCL's ranks -> the ways between them
  std::map<std::pair<int, int>, std::set<std::string>> pairs;
  std::set<std::string> networks;  ///< "Using network Socket"
  std::set<std::string> warnings;  ///< NCCL WARN lines, without time and place
  /// What names the host in its name's place: NCCL_HOSTID, as a user or a preloaded library said.
  std::string host;
};

/// @param log the text of one process's log; lines it does not know are passed over
NcclConnections parse_nccl_log(const std::string& log);

/// "p2p", "shm", "net", "collnet" or "" of a way.
std::string transport_of_way(const std::string& way);

/// A transport's name for counts of connections by p2p, shm and net over all ranks.
std::string transport_of_counts(double p2p, double shm, double net);

}  // namespace dynamiccl
