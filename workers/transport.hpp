#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/wire/record.hpp"
#include "workers/communicator.hpp"
#include "workers/network_counters.hpp"

namespace dynamiccl {

/// Bytes this process has moved so far, by the way they went.
struct Traffic {
  std::uint64_t tcp_bytes = 0;  ///< sent over its own TCP sockets, from TCP_INFO
  std::uint64_t cma_bytes = 0;  ///< process_vm_readv and process_vm_writev
  std::uint64_t cma_calls = 0;
  std::uint64_t cma_errors = 0;  ///< those calls that were refused
  NetworkCounts network;         ///< passed interfaces, others' among them
  Traffic& operator+=(const Traffic& other);
};

/// Watches which way the bytes of a launch really go, from inside the process and without help of
/// the library: TCP by the kernel's own counters of this process's sockets, CMA by standing in for
/// process_vm_readv and process_vm_writev (transport_hooks.cpp). What goes neither way went
/// through shared memory or a device.
class TransportWatch {
 public:
  /// Counts from here on.
  TransportWatch();

  /// @returns what has been moved since the last call (or construction)
  Traffic lap();

 private:
  std::map<std::uint64_t, std::uint64_t> sent_by_socket_;  ///< by inode
  Traffic cma_before_;
  NetworkCounts network_before_;
};

/// Collects a launch's traffic and names its transport.
class TransportProof {
 public:
  explicit TransportProof(Communicator& comm) : comm_(comm) {}

  void add_cell(const std::string& cell_id, const Traffic& traffic, std::uint64_t payload_bytes,
                std::uint64_t used_bytes);

  /// Takes the library's word where it has one (Communicator::transport_claim). Otherwise
  /// exchanges some large messages with the neighbours as a second witness, then judges by all
  /// ranks' bytes together, so that every rank gives the same name. Ranks: all.
  TransportRecord conclude(TransportWatch& watch);

 private:
  [[nodiscard]] TransportRecord record_claim(TransportClaim claim) const;

  Communicator& comm_;
  Traffic traffic_;
  std::uint64_t payload_bytes_ = 0;
  nlohmann::json cells_ = nlohmann::json::object();
};

/// Totals over all ranks, and the neighbours' exchange.
struct TransportTotals {
  int ranks = 1;
  double payload_bytes = 0;
  double tcp_bytes = 0;
  double cma_bytes = 0;
  double cma_errors = 0;
};

struct TransportVerdict {
  std::string transport;
  std::string evidence;
};

/// Names the way that carried at least nine tenths of the bytes, else "mixed". Bytes that went
/// neither by TCP nor by CMA are `remainder` ("shm", or "net" where a network device is open).
TransportVerdict judge_transport(const TransportTotals& totals, const std::string& remainder);

/// "net" when this process holds an RDMA device open, else "shm".
std::string remaining_transport();

/// What transport_hooks.cpp has counted since the process started.
Traffic cma_traffic();

}  // namespace dynamiccl
