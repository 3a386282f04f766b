#include "workers/transport.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>
#include <vector>

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Two connected TCP sockets of this process.
struct Connection {
  int client = socket(AF_INET, SOCK_STREAM, 0);
  int server = -1;
  Connection() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(listener, reinterpret_cast<sockaddr*>(&address), length);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    listen(listener, 1);
    if (connect(client, reinterpret_cast<sockaddr*>(&address), length) == 0)
      server = accept(listener, nullptr, nullptr);
    close(listener);
  }
  ~Connection() {
    close(client);
    close(server);
  }
};

void transfer(int from, int to, std::size_t bytes) {
  std::thread sender([&] {
    const std::vector<char> data(bytes);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t n = send(from, data.data() + done, bytes - done, 0);
      if (n <= 0) return;
      done += static_cast<std::size_t>(n);
    }
  });
  std::vector<char> data(bytes);
  CHECK(recv(to, data.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
  sender.join();
}

}  // namespace

TEST_CASE("bytes sent over the process's TCP sockets are counted, old sockets' from now on") {
  const Connection old;
  REQUIRE(old.server >= 0);
  transfer(old.client, old.server, 5000);
  TransportWatch watch;
  CHECK(watch.lap().tcp_bytes == 0);
  transfer(old.client, old.server, 300000);
  const Connection fresh;
  transfer(fresh.server, fresh.client, 70000);
  CHECK(watch.lap().tcp_bytes == 370000);
  CHECK(watch.lap().tcp_bytes == 0);
}

TEST_CASE("bytes moved by process_vm_readv and refused calls are counted") {
  TransportWatch watch;
  std::vector<char> from(1000, 'x');
  std::vector<char> to(1000);
  const iovec local{to.data(), to.size()};
  const iovec remote{from.data(), from.size()};
  CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1000);
  CHECK(to == from);
  CHECK(process_vm_writev(getpid(), &remote, 1, &local, 1, 0) == 1000);
  CHECK(process_vm_readv(-1, &local, 1, &remote, 1, 0) == -1);
  CHECK(errno == ESRCH);
  const Traffic traffic = watch.lap();
  CHECK(traffic.cma_bytes == 2000);
  CHECK(traffic.cma_calls == 3);
  CHECK(traffic.cma_errors == 1);
  CHECK(watch.lap().cma_calls == 0);
}

TEST_CASE("the transport is named after nine tenths of the bytes") {
  const auto name = [](double payload, double tcp, double cma) {
    return judge_transport({2, payload, tcp, cma, 0}, "shm").transport;
  };
  CHECK(name(1e9, 1.02e9, 0) == "tcp");
  CHECK(name(1e9, 1e6, 0.95e9) == "cma");
  CHECK(name(1e9, 1e6, 0) == "shm");
  CHECK(name(1e9, 0.5e9, 0.4e9) == "mixed");
  CHECK(judge_transport({2, 1e9, 0, 0, 0}, "net").transport == "net");
  CHECK(judge_transport({1, 0, 0, 0, 0}, "shm").transport == "self");
  CHECK_THAT(judge_transport({2, 1e9, 0, 0, 36}, "shm").evidence,
             ContainsSubstring("36 such calls were refused"));
}
