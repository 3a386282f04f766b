#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tuner/transport/connection.hpp"
#include "tuner/transport/copy_pool.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring.hpp"

namespace dynamiccl::transport {

/// Two ranks of a host: the sender copies messages into the ring's cells, the receiver out of them.
/// Small pieces are copied by NCCL's own thread, for latency; large ones by the copy threads,
/// several at a time.
class RingConnection final : public Connection, private Movable, private PeerClient {
 public:
  /// @param socket to the peer; its end is the peer's end
  /// @param first_cell as the ring was made with. @returns nullptr and a problem
  static std::unique_ptr<RingConnection> make(bool sender, FileDescriptor socket,
                                              std::unique_ptr<Ring> ring, std::size_t inline_bytes,
                                              std::string& problem, std::uint32_t first_cell = 0);
  ~RingConnection() override;

  Result isend(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) override;
  Result irecv(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) override;
  Result test(Request& request, bool& done) override;

 private:
  /// A piece that one thread has taken on itself.
  struct Piece {
    Request* request = nullptr;
    std::uint32_t cell = 0;
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  RingConnection(bool sender, FileDescriptor socket, std::unique_ptr<Ring> ring,
                 std::size_t inline_bytes, std::uint32_t first_cell);
  bool step(std::size_t most) noexcept override;
  [[nodiscard]] std::string state() override;
  bool take(std::size_t most, Piece& piece) noexcept;
  bool take_receive(Request& request, std::size_t most, Piece& piece) noexcept;
  void copy(const Piece& piece) noexcept;
  [[nodiscard]] bool cell_ready(std::uint32_t cell) const noexcept;
  Result post(Request*& request, std::byte* data, std::size_t bytes);
  /// A message is under way that NCCL's thread leaves to the copy threads: sees to it that a piece
  /// which is there is copied.
  void push_on();
  Result failure(const Request& request);
  bool on_packet(const Packet& packet, FileDescriptor file) override;
  void on_hang_up() override { peer_gone_.store(true, std::memory_order_release); }

  const bool sender_;
  const std::size_t inline_bytes_;
  FileDescriptor socket_;
  std::unique_ptr<Ring> ring_;
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;  ///< of current_, next_cell_ and requests' progress
  std::atomic<std::uint64_t> current_{0};     ///< message whose pieces are being taken
  std::atomic<std::uint32_t> next_cell_;
  std::atomic<int> busy_{0};  ///< pieces being copied now
  std::atomic<bool> peer_gone_{false};
  std::atomic<bool> peer_closed_{false};  ///< it said so: its process did not end
  std::atomic<bool> broken_{false};       ///< the peer wrote what it must not
  bool reported_ = false;
  std::uint32_t seen_cell_ = 0;  ///< which came next when NCCL's thread last looked
  int untaken_ = 0;              ///< how often it has seen that one, ready, since
};

}  // namespace dynamiccl::transport
