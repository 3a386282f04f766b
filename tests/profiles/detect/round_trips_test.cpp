#include "profiles/detect/round_trips.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

using namespace dynamiccl;

namespace {

/// serve_round_trips() in a process of its own.
class AnsweringProcess {
 public:
  explicit AnsweringProcess(const std::string& interface) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    REQUIRE(pipe(in.data()) == 0);
    REQUIRE(pipe(out.data()) == 0);
    std::fflush(nullptr);
    child_ = fork();
    if (child_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      close(in[1]);
      close(out[0]);
      _exit(serve_round_trips(interface));
    }
    close(in[0]);
    close(out[1]);
    input_ = in[1];
    for (char c = 0; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
  }
  ~AnsweringProcess() {
    if (child_ > 0) end();
  }
  AnsweringProcess(const AnsweringProcess&) = delete;
  AnsweringProcess& operator=(const AnsweringProcess&) = delete;
  /// Ends its input. @returns its exit code
  int end() {
    close(input_);
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string line;  ///< what it has printed first

 private:
  pid_t child_ = -1;
  int input_ = -1;
};

}  // namespace

TEST_CASE("a round trip is timed to whoever answers, until its input ends", "[F-06]") {
  AnsweringProcess answering("lo");
  REQUIRE(answering.line.starts_with("echo 127.0.0.1:"));
  const std::string place = answering.line.substr(5);
  const auto first = round_trip_us(place);
  REQUIRE(first);
  CHECK(*first > 0);
  // Asked again by another connection.
  CHECK(round_trip_us(place));
  CHECK(answering.end() == 0);
  CHECK_FALSE(round_trip_us(place));
  CHECK_FALSE(round_trip_us("127.0.0.1"));
  CHECK_FALSE(round_trip_us("localhost:1"));
  AnsweringProcess nowhere("no-such-interface");
  CHECK(nowhere.line.empty());
  CHECK(nowhere.end() == 1);
}

TEST_CASE("a round trip takes as long as the other side waits", "[F-06]") {
  constexpr int kWaits_us = 3000;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  auto* address = reinterpret_cast<sockaddr*>(&place);
  REQUIRE(bind(listener, address, size) == 0);
  REQUIRE(listen(listener, 1) == 0);
  REQUIRE(getsockname(listener, address, &size) == 0);
  int trips = 0;
  std::thread slow([&] {
    const int connection = accept(listener, nullptr, nullptr);
    for (char c = 0; recv(connection, &c, 1, 0) == 1; ++trips) {
      usleep(kWaits_us);
      send(connection, &c, 1, MSG_NOSIGNAL);
    }
    close(connection);
  });
  const auto began = std::chrono::steady_clock::now();
  const auto took = round_trip_us("127.0.0.1:" + std::to_string(ntohs(place.sin_port)));
  const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - began;
  slow.join();
  close(listener);
  REQUIRE(took);
  CHECK(*took >= kWaits_us);
  // The lower quartile, a burst of other work does not count: more than two thirds of the trips
  // took as long, however long that was on a busy machine.
  REQUIRE(trips > 4);
  CHECK(*took * trips * 2 / 3 < all.count());
}
