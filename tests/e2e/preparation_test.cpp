#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/containers/support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

namespace {

/// Answers every request on a unix socket with 200: what an engine says to a ping.
class Answering {
 public:
  explicit Answering(const std::string& path) : socket_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    REQUIRE(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(socket_, 16) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Answering() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  void serve() const {
    for (int client = accept(socket_, nullptr, nullptr); client >= 0;
         client = accept(socket_, nullptr, nullptr)) {
      char request[512];
      const std::string answer = "HTTP/1.0 200 OK\r\n\r\nOK";
      if (read(client, request, sizeof request) > 0)
        send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(client);
    }
  }

  int socket_;
  std::thread thread_;
};

}  // namespace

TEST_CASE(
    "Ctrl-C ends a preparation that takes long, with its processes, and nothing is judged by it") {
  const Program program;
  const std::string bin = program.folder() + "/bin";
  const std::string began = program.folder() + "/began";
  std::filesystem::create_directories(bin);
  // An engine that lacks the image and takes for ever to import one; making it takes as long.
  const std::string slow = "touch " + began + "; exec tail -f " + began;
  for (const auto& [name, text] : std::initializer_list<std::pair<std::string, std::string>>{
           {"docker", "case \"$*\" in *inspect*) exit 1 ;; *import*) " + slow + " ;; esac"},
           {"mmdebstrap", slow}})
    chmod(program.file("bin/" + name, "#!/bin/sh\n" + text + "\n").c_str(), 0755);
  const Answering engine(program.folder() + "/s");
  const ScopedVariable path("PATH", bin + ":" + std::getenv("PATH"));
  const ScopedVariable host("DOCKER_HOST", "unix://" + program.folder() + "/s");
  const auto file = program.file("x.toml", one_cell("\"single-docker\"", "gloo"));
  const pid_t pid = program.start({"run", file});
  const auto start = std::chrono::steady_clock::now();
  const auto waited = [&] { return std::chrono::steady_clock::now() - start; };
  while (!std::filesystem::exists(began) && waited() < std::chrono::seconds(180))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(std::filesystem::exists(began));
  const auto asked = std::chrono::steady_clock::now();
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  // What was interrupted would never end by itself.
  CHECK(std::chrono::steady_clock::now() - asked < std::chrono::minutes(2));
  CHECK(program.processes().empty());
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  // The environment was not judged: nothing failed, nothing is unsupported.
  CHECK(program.value("SELECT count(*) FROM launch") == 0);
  CHECK(program.value("SELECT status FROM v_cell") == "planned");
}
