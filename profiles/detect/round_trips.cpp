#include "profiles/detect/round_trips.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/vocabulary/file_descriptor.hpp"
#include "profiles/detect/network_interface.hpp"

namespace dynamiccl {
namespace {

constexpr int kTimeoutMs = 3000;
constexpr int kRoundTrips = 200;
constexpr int kWarmUp = 20;

void send_at_once(int connection) {
  const int yes = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/// Until the other side closes or stands still, or standard input ends.
void answer(int connection) {
  send_at_once(connection);
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{connection, POLLIN, 0}, pollfd{0, 0, 0}};
    if (poll(watched.data(), watched.size(), kTimeoutMs) <= 0) return;
    if (watched[0].revents == 0) return;
    std::array<char, 64> bytes{};
    const ssize_t count = recv(connection, bytes.data(), bytes.size(), 0);
    if (count <= 0 ||
        send(connection, bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) != count)
      return;
  }
}

bool connects(int handle, const sockaddr_in& to) {
  const timeval timeout{kTimeoutMs / 1000, 0};
  setsockopt(handle, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  setsockopt(handle, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  return connect(handle, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
}

}  // namespace

int serve_round_trips(const std::string& interface) {
  const auto mine = ipv4_address_of(interface.empty() ? default_interface() : interface);
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  socklen_t size = sizeof(place);
  if (mine) place.sin_addr = *mine;
  if (!mine || !listener.valid() ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&place), size) != 0 ||
      listen(listener.get(), 64) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    std::fprintf(stderr, "dynamiccl-probe: no IPv4 address to be reached at%s%s\n",
                 interface.empty() ? "" : " on ", interface.c_str());
    return 1;
  }
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &place.sin_addr, text.data(), text.size());
  std::printf("echo %s:%d\n", text.data(), ntohs(place.sin_port));
  std::fflush(stdout);
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{0, POLLIN, 0}, pollfd{listener.get(), POLLIN, 0}};
    if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return 1;
    std::array<char, 64> ignored{};
    if (watched[0].revents != 0 && read(0, ignored.data(), ignored.size()) <= 0) return 0;
    if (watched[1].revents == 0) continue;
    const FileDescriptor connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) answer(connection.get());
  }
}

std::optional<double> round_trip_us(const std::string& place) {
  const auto colon = place.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  if (colon == std::string::npos ||
      inet_pton(AF_INET, place.substr(0, colon).c_str(), &to.sin_addr) != 1)
    return std::nullopt;
  to.sin_port = htons(static_cast<std::uint16_t>(std::atoi(place.c_str() + colon + 1)));
  const FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection.valid() || !connects(connection.get(), to)) return std::nullopt;
  send_at_once(connection.get());
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + kRoundTrips; ++i) {
    char byte = 0;
    const auto began = std::chrono::steady_clock::now();
    if (send(connection.get(), &byte, 1, MSG_NOSIGNAL) != 1 ||
        recv(connection.get(), &byte, 1, 0) != 1)
      return std::nullopt;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    if (i >= kWarmUp) times.push_back(took.count());
  }
  const auto quartile = times.begin() + kRoundTrips / 4;
  std::nth_element(times.begin(), quartile, times.end());
  return *quartile;
}

}  // namespace dynamiccl
