#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tuner/transport/net_abi.hpp"
#include "tuner/transport/ring.hpp"

namespace dynamiccl::transport {

using nccl_net::Result;
class Connection;

/// What NCCL registered with a connection before it sends from it or receives into it.
struct Memory {
  int type = nccl_net::kPointerHost;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::uint32_t key = 0;     ///< of the offer to the peer; 0: none
  std::uint64_t offset = 0;  ///< of base within what was offered
};

/// One message under way. Belongs to its connection, which NCCL's progress thread alone calls.
struct Request {
  Connection* connection = nullptr;
  std::byte* data = nullptr;
  std::size_t bytes = 0;     ///< of a receive: its room, then what came
  std::size_t moved = 0;     ///< handed to copies so far
  std::uint64_t number = 0;  ///< of the message in its connection
  std::atomic<int> left{0};  ///< pieces that are not copied yet
  std::atomic<bool> in_use{false};
  bool started = false;
  std::atomic<bool> large{false};  ///< the copy threads know of it
};

/// Bytes and messages of this process by the way they went; of both directions, payload alone.
struct Counts {
  std::atomic<std::uint64_t> ring_bytes{0};
  std::atomic<std::uint64_t> device_bytes{0};
  std::atomic<std::uint64_t> tcp_bytes{0};
  std::atomic<std::uint64_t> messages{0};
};
Counts& counts();

/// One direction between two ranks. isend, irecv and test never wait. A request that cannot be
/// taken now comes back as nullptr with success; NCCL asks again.
class Connection {
 public:
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  virtual ~Connection() = default;

  /// A sender's connection: whether messages may be sent. Until then NCCL is told that it is still
  /// connecting.
  virtual Result ready(bool& is_ready);
  virtual Result register_memory(void* data, std::size_t bytes, int type, Memory*& memory);
  virtual Result forget_memory(Memory* memory);
  virtual Result isend(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) = 0;
  virtual Result irecv(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) = 0;
  virtual Result test(Request& request, bool& done) = 0;

 protected:
  /// The slot of the next message; nullptr while all are under way.
  Request* new_request(std::byte* data, std::size_t bytes);
  [[nodiscard]] std::uint64_t messages_under_way() const;
  /// A request is over; its slot is free.
  static void end_request(Request& request) { request.in_use = false; }

  std::array<Request, kSlots> requests_{};
  std::atomic<std::uint64_t> posted_{0};  ///< messages that were asked for
};

}  // namespace dynamiccl::transport
