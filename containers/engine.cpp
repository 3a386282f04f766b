#include "containers/engine.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "containers/command.hpp"
#include "core/vocabulary/file_descriptor.hpp"

namespace dynamiccl {
namespace {

class Socket {
 public:
  Socket() : handle_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  /// @returns 0 or errno
  [[nodiscard]] int connect_to(const std::string& path) const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (!handle_.valid()) return errno;
    if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return connect(handle_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
               ? 0
               : errno;
  }
  /// First bytes of the answer to an HTTP request, "" when none comes within a second.
  [[nodiscard]] std::string ask(const std::string& request) const {
    if (send(handle_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
    pollfd readable{handle_.get(), POLLIN, 0};
    constexpr int kTimeoutMs = 1000;
    if (poll(&readable, 1, kTimeoutMs) <= 0) return "";
    std::array<char, 256> buffer{};
    const ssize_t count = read(handle_.get(), buffer.data(), buffer.size());
    return count > 0 ? std::string(buffer.data(), static_cast<std::size_t>(count)) : "";
  }

 private:
  FileDescriptor handle_;
};

}  // namespace

int connect_error(const std::string& socket) { return Socket().connect_to(socket); }

bool docker_answers(const std::string& socket) {
  const Socket connection;
  if (connection.connect_to(socket) != 0) return false;
  return connection.ask("GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n").find(" 200 ") !=
         std::string::npos;
}

std::vector<std::string> engine_argv(const Engine& engine,
                                     const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = engine.command;
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

std::string engine_version(const Engine& engine) {
  const char* format =
      engine.kind == EngineKind::docker ? "{{.Server.Version}}" : "{{.Client.Version}}";
  return engine.name() + " " +
         checked_output("cannot ask the engine for its version",
                        engine_argv(engine, {"version", "--format", format}));
}

}  // namespace dynamiccl
