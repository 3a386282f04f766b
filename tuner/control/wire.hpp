#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tuner/control/call_table.hpp"

namespace dynamiccl {

/// What a rank's facts may be long: a few kilobytes, and what its NCCL_ variables say.
inline constexpr std::uint32_t kMostFactsBytes = std::uint32_t{256} << 10;

/// What leader and relays say to each other over TCP, between machines of one byte order. A fixed
/// size, then `text_bytes` of text.
struct WireHeader {
  enum class Kind : std::uint32_t {
    hello,
    status,
    prepare,
    verdict,
    left,  ///< all ranks of this host have left: no loss, but the end of the communicator
    facts  ///< the text says where a rank of this host runs
  };
  static constexpr std::uint32_t kMagic = 0x44594e58;
  std::uint32_t magic = kMagic;
  Kind kind = Kind::hello;
  std::uint64_t communicator = 0;
  std::uint32_t epoch = 0;       ///< of the proposal; in hello and status: the word's
  std::uint32_t committed = 0;   ///< verdict: 1 or 0
  std::int64_t boundary = 0;     ///< prepare; in status: calls of the furthest rank
  std::uint32_t ranks = 0;       ///< hello: of the whole communicator; status: ranks on this host;
                                 ///< facts: the rank's number
  std::uint32_t acked = 0;       ///< status: ranks that have acknowledged `epoch`
  std::uint32_t settled = 0;     ///< status: ranks that have put `epoch` into effect or dropped it
  std::uint32_t refused = 0;     ///< status: ranks that `epoch` reached too late
  std::int64_t behind = 0;       ///< status: calls of the rank behind most
  CallTable table;               ///< prepare
  std::uint32_t text_bytes = 0;  ///< facts: kMostFactsBytes at most; all others: 0
  std::uint32_t reserved = 0;
};
static_assert(std::is_trivially_copyable_v<WireHeader>);

struct WireMessage : WireHeader {
  std::string text;  ///< facts: a JSON object; comes from elsewhere and is not looked into here
};

/// One end of a connection; never blocks. A connection that fails once stays failed: also by what
/// is no message, or a text that is too long.
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
  [[nodiscard]] int descriptor() const { return file_; }
  /// Bytes that the other end has not taken yet.
  [[nodiscard]] std::size_t unsent() const { return out_.size(); }
  /// Says that nothing more comes from here. @returns false while something is still to be sent
  bool shut_down();

 private:
  void fail();
  void flush();
  [[nodiscard]] bool take_in(std::size_t bytes);
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
