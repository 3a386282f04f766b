#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tuner/control/call_table.hpp"

namespace dynamiccl {

/// What leader and relays say to each other over TCP, between machines of one byte order. A fixed
/// size, so that a stream is cut without looking into it.
struct WireMessage {
  enum class Kind : std::uint32_t {
    hello,
    status,
    prepare,
    verdict,
    left  ///< all ranks of this host have left: no loss, but the end of the communicator
  };
  static constexpr std::uint32_t kMagic = 0x44594e57;
  std::uint32_t magic = kMagic;
  Kind kind = Kind::hello;
  std::uint64_t communicator = 0;
  std::uint32_t epoch = 0;      ///< of the proposal; in hello and status: the word's
  std::uint32_t committed = 0;  ///< verdict: 1 or 0
  std::int64_t boundary = 0;    ///< prepare; in status: calls of the furthest rank
  std::uint32_t ranks = 0;      ///< hello: of the whole communicator; status: ranks on this host
  std::uint32_t acked = 0;      ///< status: ranks that have acknowledged `epoch`
  std::uint32_t settled = 0;    ///< status: ranks that have put `epoch` into effect or dropped it
  std::uint32_t refused = 0;    ///< status: ranks that `epoch` reached too late
  std::int64_t behind = 0;      ///< status: calls of the rank behind most
  CallTable table;              ///< prepare
};

/// One end of a connection; never blocks. A connection that fails once stays failed.
class WireSocket {
 public:
  explicit WireSocket(int file);
  ~WireSocket();
  WireSocket(WireSocket&& other) noexcept;
  WireSocket& operator=(WireSocket&&) = delete;

  void send(const WireMessage& message);
  /// Sends what is left to be sent, takes in what has come.
  /// @returns the next whole message; nullopt when there is none yet
  std::optional<WireMessage> receive();
  [[nodiscard]] bool alive() const { return file_ >= 0; }
  /// Says that nothing more comes from here. @returns false while something is still to be sent
  bool shut_down();

 private:
  void fail();
  void flush();
  int file_;
  std::string out_;
  std::string in_;
};

/// Waits two seconds at most. A connection over which nothing gets through for ten seconds fails.
/// @throws Error(environment) with the reason
WireSocket wire_connect(const std::string& host, int port);
/// A listening socket. @param port 0: any; set to the one taken
int wire_listen(int& port);
std::optional<WireSocket> wire_accept(int listener);

}  // namespace dynamiccl
