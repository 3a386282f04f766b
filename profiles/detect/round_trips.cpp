#include "profiles/detect/round_trips.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
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
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace dynamiccl {
namespace {

constexpr int kPatienceMs = 3000;
constexpr int kRoundTrips = 200;
constexpr int kWarmUp = 20;

class Handle {
 public:
  explicit Handle(int number) : number_(number) {}
  ~Handle() {
    if (number_ >= 0) close(number_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

std::string default_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::getline(routes, line);
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string interface;
    std::string destination;
    fields >> interface >> destination;
    if (destination == "00000000") return interface;
  }
  return "";
}

std::string address_of(const std::string& wanted) {
  const std::string interface = wanted.empty() ? default_interface() : wanted;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_UP) == 0)
      continue;
    const bool loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    if (interface.empty() ? loopback : interface != one->ifa_name) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    sockaddr_in address{};
    std::memcpy(&address, one->ifa_addr, sizeof(address));
    if (inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size()) != nullptr)
      found = text.data();
  }
  freeifaddrs(all);
  return found;
}

void send_at_once(int connection) {
  const int yes = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/// Until the other side closes or stands still, or standard input ends.
void answer(int connection) {
  send_at_once(connection);
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{connection, POLLIN, 0}, pollfd{0, 0, 0}};
    if (poll(watched.data(), watched.size(), kPatienceMs) <= 0) return;
    if (watched[0].revents == 0) return;
    std::array<char, 64> bytes{};
    const ssize_t count = recv(connection, bytes.data(), bytes.size(), 0);
    if (count <= 0 ||
        send(connection, bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL) != count)
      return;
  }
}

bool connects(int handle, const sockaddr_in& to) {
  const timeval patience{kPatienceMs / 1000, 0};
  setsockopt(handle, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  setsockopt(handle, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return connect(handle, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
}

}  // namespace

int serve_round_trips(const std::string& interface) {
  const std::string mine = address_of(interface);
  const Handle listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  socklen_t size = sizeof(place);
  if (mine.empty() || listener.number() < 0 ||
      inet_pton(AF_INET, mine.c_str(), &place.sin_addr) != 1 ||
      bind(listener.number(), reinterpret_cast<sockaddr*>(&place), size) != 0 ||
      listen(listener.number(), 64) != 0 ||
      getsockname(listener.number(), reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    std::fprintf(stderr, "dynamiccl-probe: no IPv4 address to be reached at%s%s\n",
                 interface.empty() ? "" : " on ", interface.c_str());
    return 1;
  }
  std::printf("echo %s:%d\n", mine.c_str(), ntohs(place.sin_port));
  std::fflush(stdout);
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{0, POLLIN, 0}, pollfd{listener.number(), POLLIN, 0}};
    if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return 1;
    std::array<char, 64> ignored{};
    if (watched[0].revents != 0 && read(0, ignored.data(), ignored.size()) <= 0) return 0;
    if (watched[1].revents == 0) continue;
    const Handle connection(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.number() >= 0) answer(connection.number());
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
  const Handle connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.number() < 0 || !connects(connection.number(), to)) return std::nullopt;
  send_at_once(connection.number());
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + kRoundTrips; ++i) {
    char byte = 0;
    const auto began = std::chrono::steady_clock::now();
    if (send(connection.number(), &byte, 1, MSG_NOSIGNAL) != 1 ||
        recv(connection.number(), &byte, 1, 0) != 1)
      return std::nullopt;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    if (i >= kWarmUp) times.push_back(took.count());
  }
  const auto quartile = times.begin() + kRoundTrips / 4;
  std::nth_element(times.begin(), quartile, times.end());
  return *quartile;
}

}  // namespace dynamiccl
