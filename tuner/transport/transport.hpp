#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tuner/transport/connection.hpp"
#include "tuner/transport/settings.hpp"
#include "tuner/transport/shared_folder.hpp"
#include "tuner/transport/tcp_connection.hpp"
#include "tuner/transport/wire.hpp"

namespace dynamiccl::transport {

/// What a rank offers to be connected to.
struct Listener {
  Handle handle{};
  FileDescriptor socket;
  std::vector<FileDescriptor> callers;  ///< connected, but have not said who they are
  std::unique_ptr<TcpListener> tcp;
  bool file = false;  ///< its socket file is still in the folder
};

/// This process's end of the transport. NCCL's threads call it.
class Transport {
 public:
  static Transport& instance();

  /// @returns an error only where no folder is named: then NCCL takes a network of its own, on all
  /// ranks alike
  Result init(nccl_net::Logger log);
  /// Whether NCCL was offered this network here.
  [[nodiscard]] bool offered() const;
  /// Whether NCCL may hand over memory of GPUs.
  [[nodiscard]] bool device() const { return device_; }
  Result listen(void* handle, Listener*& listener);
  /// `connection` stays nullptr while it is not there yet.
  Result connect(const void* handle, Connection*& connection);
  Result accept(Listener& listener, Connection*& connection);
  void close(Connection* connection);
  void close(Listener* listener);
  /// Says what went which way, in NCCL's log and in the file of DYNAMICCL_TRANSPORT_REPORT.
  void report() const;

 private:
  /// A connection that NCCL asks for again and again.
  struct Connecting {
    std::unique_ptr<TcpConnecting> tcp;
    Connection* connection = nullptr;
  };

  Transport() = default;
  /// Why no connection can be made here; empty: none.
  [[nodiscard]] std::string trouble() const;
  Result connect_folder(const Handle& handle, Connection*& connection);
  Result connect_tcp(const Handle& handle, std::unique_ptr<TcpConnecting>& pending,
                     Connection*& connection);
  Connecting take_connecting(const Token& token);
  void forget_file(Listener& listener) const;
  Result accept_folder(Listener& listener, Connection*& connection);
  Result make_connection(bool sender, FileDescriptor socket, std::unique_ptr<Ring> ring,
                         Connection*& connection);
  Result opened(std::unique_ptr<Connection> made, const std::string& problem,
                Connection*& connection);

  mutable std::mutex mutex_;
  bool ready_ = false;
  std::string problem_;  ///< why no connection can be made
  Settings settings_;
  std::unique_ptr<SharedFolder> folder_;
  bool device_ = false;
  std::map<Token, Connecting> connecting_;
  std::atomic<int> open_{0};
};

}  // namespace dynamiccl::transport
