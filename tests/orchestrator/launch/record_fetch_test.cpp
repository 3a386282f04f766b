// What a rank takes of who says that it hands out a launch.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "core/vocabulary/error.hpp"
#include "core/wire/record_frames.hpp"
#include "workers/run/record_link.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string frame_of(FrameKind kind, std::string_view payload = {}) {
  FrameHeader header;
  header.kind = kind;
  return frame(header, payload);
}

bool say(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

/// Takes one connection, says what it likes there, and waits for its end.
class Orchestrator {
 public:
  explicit Orchestrator(const std::function<void(int file)>& speak) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    REQUIRE(listen(listener_, 1) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    endpoint = {{"127.0.0.1"}, ntohs(address.sin_port), "t"};
    thread_ = std::thread([this, speak] {
      const int file = accept(listener_, nullptr, nullptr);
      speak(file);
      for (char heard = 0; recv(file, &heard, 1, 0) > 0;) continue;
      close(file);
    });
  }
  ~Orchestrator() {
    thread_.join();
    close(listener_);
  }
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

  RecordsEndpoint endpoint;

 private:
  int listener_ = -1;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a long run.json is fetched over a slow link in the time it takes") {
  // So much that half of it has half a minute on the slowest link, and stands still meanwhile.
  const std::string run_json(std::size_t{32} << 20, 'r');
  const std::string bytes = frame_of(FrameKind::run, run_json) + frame_of(FrameKind::begun);
  const auto half = [&](std::size_t size, std::chrono::seconds pause) {
    return [&, size, pause](int file) {
      say(file, std::string_view(bytes).substr(0, size));
      std::this_thread::sleep_for(pause);
      say(file, std::string_view(bytes).substr(size));
    };
  };
  const Orchestrator slow(half(run_json.size() / 2, std::chrono::seconds(6)));
  CHECK(fetch_run(slow.endpoint, std::chrono::seconds(5)).run_json == run_json);
  const Orchestrator stuck(half(100, std::chrono::seconds(2)));
  CHECK_THROWS_AS(fetch_run(stuck.endpoint, std::chrono::seconds(1)), Error);
}

TEST_CASE("who hands out files without end fills no rank's memory") {
  const std::string file_frame = frame_of(FrameKind::file, "table\n" + std::string(1 << 20, 'x'));
  std::size_t said = 0;
  {
    const Orchestrator endless([&](int file) {
      if (!say(file, frame_of(FrameKind::run, "{}"))) return;
      // Far more than there may be, and not enough to fill this machine.
      while (said < 4 * kMostRunBytes && say(file, file_frame)) said += file_frame.size();
    });
    CHECK_THROWS_WITH(fetch_run(endless.endpoint), ContainsSubstring("no launch has so much"));
  }
  CHECK(said < 2 * kMostRunBytes);
}
