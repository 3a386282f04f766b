#pragma once

#include <array>
#include <cstdint>

#include "tuner/transport/net_abi.hpp"

// What ranks tell each other. Every field that a peer wrote is checked before it is used.
namespace dynamiccl::transport {

inline constexpr std::uint32_t kWireMagic = 0x746e7964;  // "dynt"
inline constexpr std::uint16_t kWireVersion = 2;

using Token = std::array<std::uint8_t, 16>;

/// What a receiver's rank hands to the sender's over NCCL's own bootstrap. The last field is the
/// connecting side's own.
struct Handle {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t device;     ///< 1: may hold memory of a GPU
  std::uint8_t reachable;  ///< bit 0: by the folder, bit 1: by TCP
  std::uint64_t host;
  std::uint64_t folder;
  std::uint64_t name;  ///< of the socket file
  Token token;         ///< who knows it is of this job
  std::uint16_t family;
  std::uint16_t port;  ///< network byte order
  std::uint32_t scope;
  std::array<std::uint8_t, 16> address;
};
static_assert(sizeof(Handle) <= nccl_net::kHandleBytes);

enum class Message : std::uint32_t {
  hello = 1,     ///< sender to receiver, with the ring's file
  offer = 2,     ///< receiver to sender, with a handle of GPU memory
  imported = 3,  ///< sender to receiver: it is mapped
  refused = 4,   ///< sender to receiver: it cannot be mapped; `value` is CUDA's error
  withdraw = 5,  ///< receiver to sender: it will not be used any more
  gave_up = 6,   ///< sender to receiver, in place of hello: it has no ring
  closed = 7,    ///< either to the other: its process lives on, this connection does not
};

/// One packet between two ranks of a host, or the first bytes of a TCP stream.
struct Packet {
  std::uint32_t magic = kWireMagic;
  Message message = Message::hello;
  Token token{};
  std::uint16_t version = kWireVersion;
  std::uint8_t device = 0;
  std::uint8_t unused = 0;
  std::uint32_t cells = 0;
  std::uint64_t cell_bytes = 0;
  std::uint32_t key = 0;
  std::uint32_t value = 0;
  std::uint64_t bytes = 0;
};

}  // namespace dynamiccl::transport
