#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tuner/transport/connection.hpp"
#include "tuner/transport/copy_pool.hpp"
#include "tuner/transport/shared_folder.hpp"
#include "tuner/transport/wire.hpp"

namespace dynamiccl::transport {

/// A stream between ranks that share no folder: each message is its length and its bytes.
class TcpConnection final : public Connection, private Movable {
 public:
  static std::unique_ptr<TcpConnection> make(bool sender, FileDescriptor socket,
                                             std::size_t inline_bytes, std::string& problem);
  ~TcpConnection() override;

  Result isend(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) override;
  Result irecv(std::byte* data, std::size_t bytes, Memory& memory, Request*& request) override;
  Result test(Request& request, bool& done) override;

 private:
  enum class End { none, closed, too_long };

  TcpConnection(bool sender, FileDescriptor socket, std::size_t inline_bytes);
  bool step(std::size_t most) noexcept override;
  [[nodiscard]] std::string state() override;
  bool send_some(Request& request, std::size_t most) noexcept;
  bool receive_some(Request& request, std::size_t most) noexcept;
  bool moved(Request& request, ssize_t bytes) noexcept;
  Result post(Request*& request, std::byte* data, std::size_t bytes);
  /// Ends the connection when the peer's host is lost.
  void look_for_life() noexcept;

  const bool sender_;
  const std::size_t inline_bytes_;
  FileDescriptor socket_;
  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  std::atomic<std::uint64_t> current_{0};
  std::uint64_t length_ = 0;      ///< of the current message, as it travels
  std::size_t length_moved_ = 0;  ///< bytes of the length itself
  std::atomic<End> end_{End::none};
  bool reported_ = false;
  std::chrono::steady_clock::time_point looked_{};
};

/// Where peers reach this rank: an address of one interface, chosen as NCCL_SOCKET_IFNAME says.
class TcpListener {
 public:
  /// @returns nullptr and a problem when no interface fits
  static std::unique_ptr<TcpListener> make(const std::string& interfaces, Handle& handle,
                                           std::string& problem);
  ~TcpListener();
  /// The socket of a peer that knows the token; an invalid one while none has come. Never waits.
  /// @param problem set where none can come: the system has no room for another
  FileDescriptor accept(const Token& token, std::string& problem);

 private:
  struct Caller {
    FileDescriptor socket;
    std::array<char, sizeof(Packet)> text{};
    std::size_t size = 0;
  };
  explicit TcpListener(FileDescriptor socket) : socket_(std::move(socket)) {}

  FileDescriptor socket_;
  std::vector<Caller> callers_;
};

/// A connection on its way to a listener.
class TcpConnecting {
 public:
  static std::unique_ptr<TcpConnecting> begin(const Handle& handle, std::string& problem);
  ~TcpConnecting();
  /// @returns an invalid one while it is under way (problem empty) or when it failed
  FileDescriptor finish(std::string& problem);

 private:
  explicit TcpConnecting(const Handle& handle) : handle_(handle) {}
  Handle handle_;
  FileDescriptor socket_;
  std::size_t sent_ = 0;
};

}  // namespace dynamiccl::transport
