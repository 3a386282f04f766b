#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// Other work next to the ranks, made before their library starts its threads and held until
/// wanted:
///   cores  one busy process per core
///   link   two TCP streams over 127.0.0.1 that send as fast as the link lets them, one each way of
///   a
///          neighbour's job; of use where lo has a rate (scripts/record_traces.sh gives it one)
class OtherLoad {
 public:
  explicit OtherLoad(std::string kind) : kind_(std::move(kind)) {
    if (kind_ == "cores") {
      for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
        make([](int) { spin(); }, -1);
    } else if (kind_ == "link") {
      for (int i = 0; i < 2; ++i) make_stream();
    } else {
      throw Error(ErrorKind::input, fmt::format("--load {}: known are cores, link", kind_));
    }
  }
  ~OtherLoad() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  OtherLoad(const OtherLoad&) = delete;
  OtherLoad& operator=(const OtherLoad&) = delete;

  void start() const { signal_all(SIGCONT); }
  void stop() const { signal_all(SIGSTOP); }
  [[nodiscard]] std::string said() const {
    return kind_ == "cores" ? "a busy process per core" : "two TCP streams over the same link";
  }

 private:
  template <class Body>
  void make(Body body, int socket) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) throw Error(ErrorKind::environment, "no process for other load: fork failed");
    if (child > 0) {
      children_.push_back(child);
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    raise(SIGSTOP);
    body(socket);
    _exit(0);
  }

  [[noreturn]] static void spin() {
    const volatile bool busy = true;
    while (busy) {
    }
    _exit(0);
  }

  static void send_all(int socket) {
    const std::vector<char> data(std::size_t{256} << 10, 'x');
    while (::send(socket, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
    }
  }
  static void receive_all(int socket) {
    std::vector<char> data(std::size_t{256} << 10);
    while (::recv(socket, data.data(), data.size(), 0) > 0) {
    }
  }

  void make_stream() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const int sender = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool joined = bind(listener, generic, length) == 0 && listen(listener, 1) == 0 &&
                        getsockname(listener, generic, &length) == 0 &&
                        connect(sender, generic, length) == 0;
    const int receiver = joined ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (receiver < 0)
      throw Error(ErrorKind::environment, "no TCP stream over 127.0.0.1 for other load; is lo up?");
    make(receive_all, receiver);
    make(send_all, sender);
    for (const int socket : {listener, sender, receiver}) close(socket);
  }

  void signal_all(int signal) const {
    for (const pid_t child : children_) kill(child, signal);
  }

  std::string kind_;
  std::vector<pid_t> children_;
};

}  // namespace dynamiccl
