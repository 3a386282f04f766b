#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "tuner/transport/shared_folder.hpp"
#include "tuner/transport/wire.hpp"

namespace dynamiccl::transport {

/// Who is told what comes over the socket that ties two ranks together.
class PeerClient {
 public:
  /// @returns false when the peer is not listened to any more
  virtual bool on_packet(const Packet& packet, FileDescriptor file) = 0;
  /// The peer closed its end, or its process ended.
  virtual void on_hang_up() = 0;

 protected:
  ~PeerClient() = default;
};

/// One thread of this process that waits on those sockets, so that a peer's death is noticed while
/// NCCL's threads do something else. Calls clients one at a time.
class PeerWatch {
 public:
  static PeerWatch& instance();
  /// @returns false and a problem when the system has no more descriptors
  bool add(int socket, PeerClient& client, std::string& problem);
  /// The client is not called any more when this returns. Not to be called by clients.
  void remove(int socket);

 private:
  PeerWatch() = default;
  bool start(std::string& problem);
  void run();
  void serve(int socket);

  std::mutex mutex_;
  std::map<int, PeerClient*> clients_;
  FileDescriptor epoll_;
};

/// The last packet of a connection that this process closes, so that its peer does not take it for
/// dead. A peer that is gone, or takes nothing, needs none.
void say_closed(int socket);
/// Sends one packet, with a file where `file` is one. Never waits. @returns false with errno set
bool send_packet(int socket, const Packet& packet, int file = -1);
enum class Received { packet, nothing, closed };
/// Takes one packet with the file that came with it. What is no packet counts as the end.
Received receive_packet(int socket, Packet& packet, FileDescriptor& file);

/// Whether a call failed so for want of room for another descriptor or socket.
bool lacks_room(int error);
/// @returns errno where this process has no room for another descriptor, else 0
int want_of_room();
/// Takes who waits at a listening socket, if anybody. Never waits.
/// @param error set to errno where somebody waits and there is no room for him, else 0
FileDescriptor accept_waiting(int listener, int& error);

/// Sockets that a forked child must not keep open, or nobody would notice this process's end. Hold
/// the mutex from a socket's making until it is tracked; a tracked socket is closed by
/// close_tracked() alone.
std::mutex& fork_mutex();
void track_socket(int socket);
void close_tracked(FileDescriptor& socket);
/// Whether this process was forked from one that had such sockets: it has neither these nor the
/// threads that serve them.
bool forked();

}  // namespace dynamiccl::transport
