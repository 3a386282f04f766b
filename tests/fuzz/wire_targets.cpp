#include "tests/fuzz/wire_targets.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/wire/record.hpp"
#include "core/wire/record_frames.hpp"
#include "orchestrator/launch/record_server.hpp"

namespace dynamiccl::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;

struct Folder {
  std::string path = fs::temp_directory_path() / "dynamiccl-fuzz-XXXXXX";
  Folder() {
    if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder for an input");
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::uint64_t record_lines() const {
    std::uint64_t lines = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::ifstream file(path + "/" + record_file_name(rank), std::ios::binary);
      lines +=
          static_cast<std::uint64_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
    }
    return lines;
  }
};

/// The frame by which a rank is known.
std::string hello_of(RankSays what, const std::string& token) {
  const char* modes[] = {"", "refuse", "read", "store"};
  const auto mode = static_cast<std::size_t>(what) % std::size(modes);
  if (mode == 0) return "";
  FrameHeader header;
  header.rank = 0;
  return frame(header, token + " writer " + modes[mode]);
}

/// Without a free port it waits, for two minutes at most: an input that no server hears is not
/// tried.
std::unique_ptr<RecordServer> listening_in(const std::string& folder) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  for (;;) {
    try {
      return std::make_unique<RecordServer>(RecordServer::Launch{folder, "{}", kRanks});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment || std::chrono::steady_clock::now() > end) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

/// Sends all of it and takes every answer, until the other end has no more to say.
void talk(int port, const std::string& bytes) {
  const FileDescriptor file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Whom the server turns away ends by a reset: its port is free at once, not after a minute.
  const linger no_wait{1, 0};
  setsockopt(file.get(), SOL_SOCKET, SO_LINGER, &no_wait, sizeof(no_wait));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  // Ports of ended connections come back after a minute: a long run waits for them. Alarms of
  // libFuzzer interrupt.
  while (connect(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 &&
         errno != EISCONN) {
    if (errno != EADDRNOTAVAIL && errno != EINTR && errno != EALREADY)
      throw std::runtime_error(std::string("no connection: ") + std::strerror(errno));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  char part[65536];
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(file.get(), bytes.data() + sent,
                           std::min<std::size_t>(bytes.size() - sent, 65536), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // turned away
    sent += static_cast<std::size_t>(n);
    while (recv(file.get(), part, sizeof(part), MSG_DONTWAIT) > 0) {
    }
  }
  if (recv(file.get(), part, sizeof(part), MSG_DONTWAIT | MSG_PEEK) == 0) return;
  shutdown(file.get(), SHUT_WR);
  for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);)
    n = recv(file.get(), part, sizeof(part), 0);
}

}  // namespace

void read_record_frames(const std::string& input) {
  if (input.empty()) return;
  const Folder folder;
  const auto server = listening_in(folder.path);
  talk(server->port(),
       hello_of(static_cast<RankSays>(input[0] & 3), server->token()) + input.substr(1));
  server->finish(Micros{0});
  if (folder.record_lines() != server->counts().lines)
    throw std::logic_error("a stored record is not one line");
}

}  // namespace dynamiccl::fuzz
