#include "tuner/transport/tcp_connection.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <sstream>

#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/settings.hpp"

namespace dynamiccl::transport {
namespace {

constexpr std::size_t kPiece = std::size_t{512} << 10;
constexpr std::size_t kMostTcpCallers = 64;

constexpr std::uint32_t kSilence_ms = 9000;  ///< after which a host that owes answers is lost
constexpr std::chrono::seconds kLook{1};

/// Lost peers are noticed within ten seconds, and small messages are not held back. While data wait
/// for the peer keepalive is silent: is_lost() looks then. TCP_USER_TIMEOUT would not do: it also
/// ends a connection whose peer answers, but does not take data for so long.
void tune(int socket) {
  const auto set = [socket](int level, int name, int value) {
    static_cast<void>(setsockopt(socket, level, name, &value, sizeof value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 2);
}

/// Whether the peer's host has not answered for long what TCP sent it several times. A process that
/// is stopped, or does something else, still has its system's answers.
bool is_lost(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const bool unanswered =
      info.tcpi_unacked != 0 ? info.tcpi_retransmits >= 3 : info.tcpi_probes >= 2;
  return unanswered && info.tcpi_last_ack_recv > kSilence_ms;
}

socklen_t address_of(const Handle& handle, sockaddr_storage& storage) {
  storage = {};
  if (handle.family == AF_INET) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = handle.port;
    std::memcpy(&address.sin_addr, handle.address.data(), sizeof address.sin_addr);
    return sizeof address;
  }
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_port = handle.port;
  address.sin6_scope_id = handle.scope;
  std::memcpy(&address.sin6_addr, handle.address.data(), sizeof address.sin6_addr);
  return sizeof address;
}

/// NCCL_SOCKET_IFNAME: "eth,ib": prefixes; "=eth0": that one; "^docker": all others. By itself
/// anything but loopback and Docker's bridge, and these where there is nothing else.
bool interface_fits(const std::string& wanted, const std::string& name, bool last_resort) {
  if (wanted.empty())
    return last_resort || (name.rfind("lo", 0) != 0 && name.rfind("docker", 0) != 0);
  const bool others = wanted[0] == '^';
  const bool exact = wanted[0] == '=';
  std::istringstream words(others || exact ? wanted.substr(1) : wanted);
  bool named = false;
  for (std::string word; std::getline(words, word, ',');)
    named |= exact ? word == name : name.rfind(word, 0) == 0;
  return named != others;
}

void put_address(const sockaddr* address, Handle& handle) {
  handle.family = address->sa_family;
  if (address->sa_family == AF_INET) {
    std::memcpy(handle.address.data(), &reinterpret_cast<const sockaddr_in*>(address)->sin_addr,
                sizeof(in_addr));
    return;
  }
  const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
  handle.scope = six->sin6_scope_id;
  std::memcpy(handle.address.data(), &six->sin6_addr, sizeof six->sin6_addr);
}

bool choose_address(const std::string& wanted, Handle& handle) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  // IPv4 first; then IPv6; then what is left for want of better.
  for (const bool last_resort : {false, true}) {
    for (const int family : {AF_INET, AF_INET6}) {
      for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family ||
            (one->ifa_flags & IFF_UP) == 0 || !interface_fits(wanted, one->ifa_name, last_resort))
          continue;
        put_address(one->ifa_addr, handle);
        found = true;
      }
    }
  }
  freeifaddrs(all);
  return found;
}

FileDescriptor tcp_socket(int family) {
  const std::lock_guard<std::mutex> lock(fork_mutex());
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.valid()) track_socket(socket.get());
  return socket;
}

}  // namespace

TcpConnection::TcpConnection(bool sender, FileDescriptor socket, std::size_t inline_bytes)
    : sender_(sender), inline_bytes_(inline_bytes), socket_(std::move(socket)) {}

std::unique_ptr<TcpConnection> TcpConnection::make(bool sender, FileDescriptor socket,
                                                   std::size_t inline_bytes, std::string& problem) {
  if (CopyPool::instance().threads() == 0) inline_bytes = std::numeric_limits<std::size_t>::max();
  tune(socket.get());
  std::unique_ptr<TcpConnection> connection(
      new TcpConnection(sender, std::move(socket), inline_bytes));
  if (!CopyPool::instance().add(*connection)) {
    problem = "more connections than this transport holds";
    return nullptr;
  }
  return connection;
}

TcpConnection::~TcpConnection() {
  CopyPool::instance().remove(*this);
  for (const Request& request : requests_)
    if (request.in_use && request.large) CopyPool::instance().end_large();
  close_tracked(socket_);
}

bool TcpConnection::moved(Request& request, ssize_t bytes) noexcept {
  if (bytes <= 0) {
    if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) end_.store(End::closed);
    return false;
  }
  auto count = static_cast<std::size_t>(bytes);
  const std::size_t of_length = std::min(count, sizeof length_ - length_moved_);
  length_moved_ += of_length;
  request.moved += count - of_length;
  return true;
}

bool TcpConnection::send_some(Request& request, std::size_t most) noexcept {
  length_ = request.bytes;
  std::array<iovec, 2> parts{};
  parts[0] = {reinterpret_cast<char*>(&length_) + length_moved_, sizeof length_ - length_moved_};
  parts[1] = {request.data + request.moved, std::min(request.bytes - request.moved, most)};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return moved(request, sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

bool TcpConnection::receive_some(Request& request, std::size_t most) noexcept {
  if (length_moved_ < sizeof length_) {
    const bool any =
        moved(request, recv(socket_.get(), reinterpret_cast<char*>(&length_) + length_moved_,
                            sizeof length_ - length_moved_, MSG_DONTWAIT));
    if (!any || length_moved_ < sizeof length_) return any;
    if (length_ > request.bytes) {
      end_.store(End::too_long);
      return false;
    }
    request.bytes = length_;
    return true;
  }
  return moved(request, recv(socket_.get(), request.data + request.moved,
                             std::min(request.bytes - request.moved, most), MSG_DONTWAIT));
}

std::string TcpConnection::state() {
  const std::uint64_t under_way = messages_under_way();
  if (under_way == 0) return "";
  return std::string(sender_ ? "sends" : "receives") +
         " by TCP: " + std::to_string(posted_.load()) + " messages asked for, " +
         std::to_string(under_way) + " not over, " + std::to_string(current_.load()) +
         " moved in whole" + (end_.load() == End::none ? "" : "; the connection is over") + "\n";
}

bool TcpConnection::step(std::size_t most) noexcept {
  const std::uint64_t message = current_.load(std::memory_order_relaxed);
  if (message == posted_.load(std::memory_order_acquire) || end_.load() != End::none ||
      lock_.test_and_set(std::memory_order_acquire))
    return false;
  bool any = false;
  const std::uint64_t now = current_.load(std::memory_order_relaxed);
  if (now != posted_.load(std::memory_order_acquire)) {
    Request& request = requests_[now % kSlots];
    const std::size_t piece = std::min(most, kPiece);
    any = sender_ ? send_some(request, piece) : receive_some(request, piece);
    if (length_moved_ == sizeof length_ && request.moved == request.bytes) {
      length_moved_ = 0;
      current_.store(now + 1, std::memory_order_relaxed);
      request.left.store(0, std::memory_order_release);
    }
  }
  lock_.clear(std::memory_order_release);
  return any;
}

Result TcpConnection::post(Request*& request, std::byte* data, std::size_t bytes) {
  request = new_request(data, bytes);
  if (request == nullptr) return nccl_net::kSuccess;
  request->left.store(1, std::memory_order_relaxed);
  request->large.store(bytes > inline_bytes_, std::memory_order_relaxed);
  posted_.store(request->number + 1, std::memory_order_release);
  if (request->large.load(std::memory_order_relaxed)) CopyPool::instance().begin_large();
  return nccl_net::kSuccess;
}

Result TcpConnection::isend(std::byte* data, std::size_t bytes, Memory& /*memory*/,
                            Request*& request) {
  const Result result = post(request, data, bytes);
  if (request != nullptr) step(inline_bytes_);
  return result;
}
Result TcpConnection::irecv(std::byte* data, std::size_t bytes, Memory& /*memory*/,
                            Request*& request) {
  return post(request, data, bytes);
}

Result TcpConnection::test(Request& request, bool& done) {
  if (request.left.load(std::memory_order_acquire) != 0) step(inline_bytes_);
  done = request.left.load(std::memory_order_acquire) == 0;
  if (done) {
    if (request.large) CopyPool::instance().end_large();
    counts().tcp_bytes.fetch_add(request.bytes, std::memory_order_relaxed);
    counts().messages.fetch_add(1, std::memory_order_relaxed);
    end_request(request);
    return nccl_net::kSuccess;
  }
  if (end_.load() == End::none) {
    if (request.large) CopyPool::instance().wake();
    look_for_life();
    return nccl_net::kSuccess;
  }
  if (reported_) return nccl_net::kRemoteError;
  reported_ = true;
  return fail(nccl_net::kRemoteError,
              end_.load() == End::too_long
                  ? "a message is longer than its receive: this connection ends"
                  : "the connection to a rank of another host ended while messages were under "
                    "way. See the output of the other ranks for why.");
}

void TcpConnection::look_for_life() noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kLook) return;
  looked_ = now;
  if (is_lost(socket_.get())) end_.store(End::closed);
}

std::unique_ptr<TcpListener> TcpListener::make(const std::string& interfaces, Handle& handle,
                                               std::string& problem) {
  if (!choose_address(interfaces, handle)) {
    problem = "no network interface fits NCCL_SOCKET_IFNAME=" + interfaces;
    return nullptr;
  }
  std::unique_ptr<TcpListener> listener(new TcpListener(tcp_socket(handle.family)));
  sockaddr_storage storage{};
  socklen_t size = address_of(handle, storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  const int socket = listener->socket_.get();
  if (socket < 0 || bind(socket, address, size) != 0 || ::listen(socket, 64) != 0 ||
      getsockname(socket, address, &size) != 0) {
    problem = "cannot listen for ranks of other hosts" + errno_text(errno) + advice_for(errno, "");
    return nullptr;
  }
  handle.port = handle.family == AF_INET ? reinterpret_cast<sockaddr_in&>(storage).sin_port
                                         : reinterpret_cast<sockaddr_in6&>(storage).sin6_port;
  return listener;
}

TcpListener::~TcpListener() {
  for (Caller& caller : callers_) close_tracked(caller.socket);
  close_tracked(socket_);
}

FileDescriptor TcpListener::accept(const Token& token, std::string& problem) {
  {
    const std::lock_guard<std::mutex> lock(fork_mutex());
    int error = 0;
    FileDescriptor socket = accept_waiting(socket_.get(), error);
    if (error != 0) {
      problem = "cannot take another rank's connection" + errno_text(error) + advice_for(error, "");
      return {};
    }
    if (socket.valid()) {
      track_socket(socket.get());
      callers_.push_back({std::move(socket), {}, 0});
    }
  }
  for (std::size_t i = 0; i < callers_.size(); ++i) {
    Caller& caller = callers_[i];
    const ssize_t size = recv(caller.socket.get(), caller.text.data() + caller.size,
                              caller.text.size() - caller.size, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    caller.size += static_cast<std::size_t>(std::max<ssize_t>(size, 0));
    if (size > 0 && caller.size < caller.text.size()) continue;
    Packet packet;
    std::memcpy(&packet, caller.text.data(), sizeof packet);
    FileDescriptor socket = std::move(caller.socket);
    callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(i));
    if (size > 0 && packet.magic == kWireMagic && packet.version == kWireVersion &&
        packet.message == Message::hello && packet.token == token)
      return socket;
    close_tracked(socket);  // nobody of this job
    --i;
  }
  // Who has waited longest says nothing: others shall not wait for him.
  if (callers_.size() > kMostTcpCallers) {
    close_tracked(callers_.front().socket);
    callers_.erase(callers_.begin());
  }
  return {};
}

std::unique_ptr<TcpConnecting> TcpConnecting::begin(const Handle& handle, std::string& problem) {
  std::unique_ptr<TcpConnecting> connecting(new TcpConnecting(handle));
  connecting->socket_ = tcp_socket(handle.family == AF_INET ? AF_INET : AF_INET6);
  sockaddr_storage storage{};
  const socklen_t size = address_of(handle, storage);
  if (!connecting->socket_.valid() ||
      (::connect(connecting->socket_.get(), reinterpret_cast<sockaddr*>(&storage), size) != 0 &&
       errno != EINPROGRESS)) {
    problem =
        "cannot connect to a rank of another host" + errno_text(errno) + advice_for(errno, "");
    return nullptr;
  }
  return connecting;
}

TcpConnecting::~TcpConnecting() { close_tracked(socket_); }

FileDescriptor TcpConnecting::finish(std::string& problem) {
  pollfd event{socket_.get(), POLLOUT, 0};
  if (poll(&event, 1, 0) == 0) return {};
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) {
    Packet packet;
    packet.token = handle_.token;
    const ssize_t sent = send(socket_.get(), reinterpret_cast<const char*>(&packet) + sent_,
                              sizeof packet - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
      if (sent_ == sizeof packet) return std::move(socket_);
      return {};
    }
    error = errno == EAGAIN || errno == EINTR ? 0 : errno;
  }
  if (error != 0) problem = "cannot connect to a rank of another host" + errno_text(error);
  return {};
}

}  // namespace dynamiccl::transport
