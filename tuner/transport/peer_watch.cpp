#include "tuner/transport/peer_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {
namespace {

constexpr int kPacketsAtOnce = 16;

std::mutex& tracked_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
std::vector<int>& tracked() {
  static std::vector<int>* const sockets = new std::vector<int>;
  return *sockets;
}

std::atomic<bool> g_forked{false};

void before_fork() { tracked_mutex().lock(); }
void after_fork() { tracked_mutex().unlock(); }
void in_child() {
  for (const int socket : tracked()) ::close(socket);
  tracked().clear();
  g_forked.store(true);
  tracked_mutex().unlock();
}

union Ancillary {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

std::mutex& fork_mutex() {
  static const int once = pthread_atfork(before_fork, after_fork, in_child);
  static_cast<void>(once);
  return tracked_mutex();
}
void track_socket(int socket) { tracked().push_back(socket); }
void close_tracked(FileDescriptor& socket) {
  if (!socket.valid()) return;
  const std::lock_guard<std::mutex> lock(fork_mutex());
  std::vector<int>& all = tracked();
  const auto place = std::find(all.begin(), all.end(), socket.get());
  // A forked child's sockets are closed already, and the number may be another's.
  if (place == all.end()) {
    socket.release();
    return;
  }
  all.erase(place);
  socket.reset();
}

bool lacks_room(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int want_of_room() {
  const std::lock_guard<std::mutex> lock(fork_mutex());
  const FileDescriptor spare(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  return !spare.valid() && lacks_room(errno) ? errno : 0;
}

FileDescriptor accept_waiting(int listener, int& error) {
  error = 0;
  // Without room accept4() fails whether somebody waits or not.
  pollfd event{listener, POLLIN, 0};
  if (poll(&event, 1, 0) != 1) return {};
  FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid() && lacks_room(errno)) error = errno;
  return socket;
}

bool forked() { return g_forked.load(); }

bool send_packet(int socket, const Packet& packet, int file) {
  iovec part{const_cast<Packet*>(&packet), sizeof packet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Ancillary ancillary{};
  if (file >= 0) {
    message.msg_control = ancillary.bytes;
    message.msg_controllen = sizeof ancillary.bytes;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof packet);
}

void say_closed(int socket) {
  Packet packet;
  packet.message = Message::closed;
  static_cast<void>(send_packet(socket, packet));
}

Received receive_packet(int socket, Packet& packet, FileDescriptor& file) {
  iovec part{&packet, sizeof packet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Ancillary ancillary{};
  message.msg_control = ancillary.bytes;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // in the padding there were room for another
  const ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Received::nothing : Received::closed;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof number);
    file = FileDescriptor(number);
  }
  const bool whole = size == static_cast<ssize_t>(sizeof packet) &&
                     (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                     packet.magic == kWireMagic && packet.version == kWireVersion;
  return whole ? Received::packet : Received::closed;
}

PeerWatch& PeerWatch::instance() {
  static PeerWatch* const watch = new PeerWatch;  // its thread outlives static objects
  return *watch;
}

bool PeerWatch::start(std::string& problem) {
  if (epoll_.valid()) return true;
  {
    const std::lock_guard<std::mutex> lock(fork_mutex());
    epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    if (epoll_.valid()) track_socket(epoll_.get());
  }
  if (!epoll_.valid()) {
    problem = "cannot watch peers" + errno_text(errno) + advice_for(errno, "");
    return false;
  }
  try {
    std::thread([this] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      pthread_setname_np(pthread_self(), "dynamiccl-peers");
      run();
    }).detach();
  } catch (const std::system_error& error) {
    // Without it a peer's death would go unnoticed.
    close_tracked(epoll_);
    problem = std::string("cannot start the thread that watches peers: ") + error.what() +
              ". Raise this container's limit of processes.";
    return false;
  }
  return true;
}

bool PeerWatch::add(int socket, PeerClient& client, std::string& problem) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!start(problem)) return false;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = socket;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    problem = "cannot watch a peer" + errno_text(errno);
    return false;
  }
  clients_[socket] = &client;
  return true;
}

void PeerWatch::remove(int socket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (clients_.erase(socket) != 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void PeerWatch::run() {
  std::array<epoll_event, 32> events{};
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) serve(events[static_cast<std::size_t>(i)].data.fd);
  }
}

void PeerWatch::serve(int socket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto client = clients_.find(socket);
  if (client == clients_.end()) return;
  // A peer that talks all the time must not keep others, or who closes its connection, waiting.
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    Packet packet;
    FileDescriptor file;
    const Received received = receive_packet(socket, packet, file);
    if (received == Received::nothing) return;
    if (received == Received::packet && client->second->on_packet(packet, std::move(file)))
      continue;
    PeerClient& ended = *client->second;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
    clients_.erase(client);
    ended.on_hang_up();
    return;
  }
}

}  // namespace dynamiccl::transport
