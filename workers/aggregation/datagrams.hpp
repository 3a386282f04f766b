#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "workers/aggregation/aggregation_packet.hpp"

namespace dynamiccl {

/// A UDP socket by which packets go several at a time: the kernel cuts what is sent to one place
/// into datagrams, and hands on together what came from one (UDP_SEGMENT, UDP_GRO of udp(7)), which
/// takes a core a third of the time of a call for each. Owns the descriptor.
class Datagrams {
 public:
  Datagrams();
  ~Datagrams();
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;
  /// -1: there is none.
  [[nodiscard]] int descriptor() const { return socket_; }

  /// Sends at the next flush(); both stay until then. @param to nullptr: where the socket is
  /// connected
  void add(const AggregationPacket& packet, const sockaddr_in* to);
  /// What the kernel does not take is lost, as on the way.
  void flush();
  /// What has come, packet by packet, without waiting. Their header is whole and says their length.
  void receive(const std::function<void(const AggregationPacket&, const sockaddr_in&)>& take);

 private:
  static constexpr std::size_t kTogether = 16;
  struct Outgoing {
    const AggregationPacket* packet;
    const sockaddr_in* to;
  };
  bool send(std::size_t first, std::size_t count) const;

  int socket_;
  std::size_t together_ = kTogether;  ///< 1 where the kernel does not cut
  std::vector<Outgoing> out_;
  std::vector<AggregationPacket> in_;
};

}  // namespace dynamiccl
