#include "tuner/control/wire.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

constexpr int kConnectMs = 2000;
/// Without them a host that is cut off would be waited for until TCP gives up, a quarter of an
/// hour.
constexpr unsigned kUnacknowledgedMs = 10000;
constexpr int kIdle_s = 5;
constexpr int kProbe_s = 2;
constexpr int kProbes = 3;
constexpr std::size_t kMostBuffered = std::size_t{16} << 20;

void make_quick(int file) {
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(file, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &kIdle_s, sizeof(kIdle_s));
  setsockopt(file, IPPROTO_TCP, TCP_KEEPINTVL, &kProbe_s, sizeof(kProbe_s));
  setsockopt(file, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
  setsockopt(file, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof(kUnacknowledgedMs));
  fcntl(file, F_SETFL, O_NONBLOCK);
  fcntl(file, F_SETFD, FD_CLOEXEC);
}

/// connect() with a limit. @returns 0 or an errno
int connect_within(int file, const sockaddr* address, socklen_t length, int limit_ms) {
  fcntl(file, F_SETFL, O_NONBLOCK);
  if (connect(file, address, length) == 0) return 0;
  // Interrupted, it goes on by itself.
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd wait{file, POLLOUT, 0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  for (int ready = -1; ready <= 0;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    ready = poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready == 0) return ETIMEDOUT;
    if (ready < 0 && errno != EINTR) return errno;
  }
  int problem = 0;
  socklen_t size = sizeof(problem);
  getsockopt(file, SOL_SOCKET, SO_ERROR, &problem, &size);
  return problem;
}

bool only_later() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

WireSocket::WireSocket(int file) : file_(file) { make_quick(file_); }
WireSocket::WireSocket(WireSocket&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      out_(std::move(other.out_)),
      in_(std::move(other.in_)) {}
WireSocket::~WireSocket() { fail(); }

void WireSocket::fail() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

void WireSocket::send(const WireMessage& message) {
  DYN_ASSERT(message.text.size() <= (message.kind == WireHeader::Kind::facts ? kMostFactsBytes : 0),
             "facts alone carry a text, and no longer one than the other end takes");
  WireHeader header = message;
  header.text_bytes = static_cast<std::uint32_t>(message.text.size());
  out_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  out_ += message.text;
  // Who does not read for so long is gone.
  if (out_.size() > kMostBuffered) fail();
  flush();
}

void WireSocket::flush() {
  while (alive() && !out_.empty()) {
    const ssize_t n = ::send(file_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && only_later()) return;
    if (n <= 0) return fail();
    out_.erase(0, static_cast<std::size_t>(n));
  }
}

/// @returns whether so many bytes are here
bool WireSocket::take_in(std::size_t bytes) {
  char part[8192];
  while (alive() && in_.size() < bytes) {
    const ssize_t n = recv(file_, part, sizeof(part), 0);
    if (n < 0 && only_later()) break;
    if (n <= 0) {
      fail();
      break;
    }
    in_.append(part, static_cast<std::size_t>(n));
  }
  return in_.size() >= bytes;
}

std::optional<WireMessage> WireSocket::receive() {
  flush();
  if (!take_in(sizeof(WireHeader))) return std::nullopt;
  WireHeader header;
  std::memcpy(&header, in_.data(), sizeof(header));
  const bool facts = header.kind == WireHeader::Kind::facts;
  if (header.magic != WireHeader::kMagic || header.kind > WireHeader::Kind::facts ||
      header.text_bytes > (facts ? kMostFactsBytes : 0)) {
    fail();
    in_.clear();
    return std::nullopt;
  }
  if (!take_in(sizeof(header) + header.text_bytes)) return std::nullopt;
  WireMessage message{header, in_.substr(sizeof(header), header.text_bytes)};
  in_.erase(0, sizeof(header) + header.text_bytes);
  return message;
}

bool WireSocket::shut_down() {
  flush();
  if (!alive()) return true;
  if (!out_.empty()) return false;
  shutdown(file_, SHUT_WR);
  return true;
}

WireSocket wire_connect(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string where = host + ":" + std::to_string(port);
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw Error(ErrorKind::environment, "cannot look up the leader's host " + where);
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int problem =
      file < 0 ? errno : connect_within(file, found->ai_addr, found->ai_addrlen, kConnectMs);
  const std::string reason = std::strerror(problem);
  freeaddrinfo(found);
  if (problem != 0) {
    if (file >= 0) close(file);
    throw Error(ErrorKind::environment,
                "cannot reach the leader at " + where + ": " + reason + "; start it first");
  }
  return WireSocket(file);
}

int wire_listen(int& port) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t length = sizeof(address);
  if (file < 0 || bind(file, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(file, 64) != 0)
    throw Error(ErrorKind::environment,
                "cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno));
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &length);
  port = ntohs(address.sin_port);
  make_quick(file);
  return file;
}

std::optional<WireSocket> wire_accept(int listener) {
  const int file = accept(listener, nullptr, nullptr);
  if (file < 0) return std::nullopt;
  return WireSocket(file);
}

}  // namespace dynamiccl
