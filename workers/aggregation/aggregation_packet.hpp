#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace dynamiccl {

/// What an aggregator does with a chunk; what it answers is of the same kind.
enum class AggregationKind : std::uint16_t {
  hello,     ///< "I am this rank, of so many slots" (sequence): answered alone, if so many
  sum,       ///< adds, modulo 2^32
  greatest,  ///< the greatest of the ranks' numbers
  waits      ///< answered alone: the chunk is here, others' are not
};

/// The head of a datagram. Host byte order: a launch runs on one kind of machine.
struct AggregationHeader {
  std::uint64_t key = 0;       ///< the launch's; a datagram with another one is nobody's
  std::uint64_t sequence = 0;  ///< the ranks' chunks in the order in which all of them send
  std::uint16_t rank = 0;
  AggregationKind kind = AggregationKind::hello;
  std::uint32_t elements = 0;
};

/// Datagrams that fit into an Ethernet frame whole: 24 + 1,440 bytes, with 28 of IP and UDP.
inline constexpr std::size_t kChunkElements = 360;
struct AggregationPacket {
  AggregationHeader header;
  std::array<std::int32_t, kChunkElements> values;
};
inline std::size_t packet_bytes(const AggregationHeader& header) {
  return sizeof(AggregationHeader) + header.elements * sizeof(std::int32_t);
}

/// Chunks under way of a rank: as many as its link and the way back hold, and few enough that all
/// ranks' fit into a socket's buffer.
inline constexpr std::size_t kAggregationSlots = 128;

}  // namespace dynamiccl
