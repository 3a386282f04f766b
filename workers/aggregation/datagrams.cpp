#include "workers/aggregation/datagrams.hpp"

#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dynamiccl {
namespace {

constexpr std::size_t kLongest = 65536;  // what comes together

/// Of each datagram in what came together; all of it where it came alone.
std::size_t segment_bytes_of(msghdr& message, std::size_t bytes) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_UDP || c->cmsg_type != UDP_GRO) continue;
    int each = 0;
    std::memcpy(&each, CMSG_DATA(c), sizeof each);
    return static_cast<std::size_t>(std::max(each, 1));
  }
  return std::max<std::size_t>(bytes, 1);
}

}  // namespace

Datagrams::Datagrams()
    : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
      in_(kLongest / sizeof(AggregationPacket) + 1) {
  // All ranks' chunks at once; past the system's limit where this user may.
  const int buffer = 8 << 20;
  if (setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer) != 0)
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  const int on = 1;
  setsockopt(socket_, SOL_UDP, UDP_GRO, &on, sizeof on);
}

Datagrams::~Datagrams() { ::close(socket_); }

void Datagrams::add(const AggregationPacket& packet, const sockaddr_in* to) {
  out_.push_back({&packet, to});
}

void Datagrams::flush() {
  std::stable_sort(out_.begin(), out_.end(),
                   [](const Outgoing& a, const Outgoing& b) { return a.to < b.to; });
  for (std::size_t first = 0; first < out_.size();) {
    std::size_t count = 1;
    // All but the last are of one length.
    const auto full = packet_bytes(out_[first].packet->header);
    while (first + count < out_.size() && count < together_ &&
           out_[first + count].to == out_[first].to &&
           packet_bytes(out_[first + count - 1].packet->header) == full &&
           packet_bytes(out_[first + count].packet->header) <= full)
      ++count;
    if (!send(first, count) && count > 1 && (errno == EIO || errno == EINVAL)) {
      together_ = 1;
      continue;
    }
    first += count;
  }
  out_.clear();
}

bool Datagrams::send(std::size_t first, std::size_t count) const {
  std::array<iovec, kTogether> places;
  for (std::size_t i = 0; i < count; ++i) {
    const AggregationPacket& packet = *out_[first + i].packet;
    places[i] = {const_cast<AggregationPacket*>(&packet), packet_bytes(packet.header)};
  }
  msghdr message{};
  message.msg_iov = places.data();
  message.msg_iovlen = count;
  message.msg_name = const_cast<sockaddr_in*>(out_[first].to);
  message.msg_namelen = message.msg_name == nullptr ? 0 : sizeof(sockaddr_in);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> control{};
  if (count > 1) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* segment = CMSG_FIRSTHDR(&message);
    segment->cmsg_level = SOL_UDP;
    segment->cmsg_type = UDP_SEGMENT;
    segment->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto each = static_cast<std::uint16_t>(places[0].iov_len);
    std::memcpy(CMSG_DATA(segment), &each, sizeof each);
  }
  return sendmsg(socket_, &message, 0) >= 0;
}

void Datagrams::receive(
    const std::function<void(const AggregationPacket&, const sockaddr_in&)>& take) {
  for (int i = 0; i < 8; ++i) {
    sockaddr_in from{};
    iovec place{in_.data(), kLongest};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{&from, sizeof from, &place, 1, control.data(), control.size(), 0};
    const ssize_t got = recvmsg(socket_, &message, MSG_DONTWAIT);
    if (got < 0) return;
    const auto bytes = static_cast<std::size_t>(got);
    const std::size_t each = segment_bytes_of(message, bytes);
    // A sender of ours has segments whose numbers lie as a packet's do.
    if (each % alignof(AggregationPacket) != 0 && each != bytes) continue;
    for (std::size_t at = 0; at < bytes; at += each) {
      const auto& packet = *reinterpret_cast<const AggregationPacket*>(
          reinterpret_cast<const std::byte*>(in_.data()) + at);
      const std::size_t length = std::min(each, bytes - at);
      if (length >= sizeof(AggregationHeader) && packet.header.elements <= kChunkElements &&
          length == packet_bytes(packet.header))
        take(packet, from);
    }
  }
}

}  // namespace dynamiccl
