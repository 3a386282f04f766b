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
#include "core/wire/record.hpp"
#include "core/wire/record_frames.hpp"
#include "orchestrator/launch/record_server.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring_connection.hpp"
#include "tuner/transport/wire.hpp"

namespace dynamiccl::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace transport;

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

/// One connection of the transport whose other process is the input.
class Ringed {
 public:
  Ringed(const Packet& hello, bool sender) : sender_(sender) {
    std::string problem;
    int ends[2] = {};
    theirs_ = Ring::make(kRingCells, kRingCellBytes, problem);
    if (theirs_ == nullptr ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      throw std::runtime_error("no ring: " + problem);
    track_socket(ends[0]);
    FileDescriptor mine(ends[0]);
    peer_ = FileDescriptor(ends[1]);
    send_packet(peer_.get(), hello, theirs_->file());
    Packet heard;
    FileDescriptor file;
    std::unique_ptr<Ring> ring;
    if (receive_packet(mine.get(), heard, file) == Received::packet &&
        heard.message == Message::hello)
      ring = Ring::map(std::move(file), heard.cells, heard.cell_bytes, problem);
    if (ring == nullptr)
      close_tracked(mine);
    else
      connection_ = RingConnection::make(sender, std::move(mine), std::move(ring), 32768, problem);
  }

  [[nodiscard]] bool let_in() const { return connection_ != nullptr; }

  void step(const RingStep& step) {
    switch (step.what % RingStep::kinds) {
      case RingStep::post:
        return post(step.bytes % (kRoom + 1));
      case RingStep::write: {
        Cell& cell = theirs_->cell(step.cell);
        cell.bytes.store(step.bytes);
        cell.total.store(step.total);
        cell.turn.store(step.cell + (step.turns == 0 ? 1U : step.turns));
        return;
      }
      default:
        return test();
    }
  }

  /// Ends the connection, so that no copy is under way, and looks at what lies around the message.
  void check() {
    connection_.reset();
    for (std::size_t i = 0; i < room_.size(); ++i)
      if ((i < kGuard || i >= kGuard + kRoom) && room_[i] != kFill)
        throw std::logic_error("a peer wrote outside of a message");
  }

 private:
  static constexpr std::size_t kGuard = 8192;
  static constexpr std::size_t kRoom = 16384;
  static constexpr std::byte kFill{0x77};

  void post(std::size_t bytes) {
    Request* request = nullptr;
    // At the room's end: a byte too many meets the guard.
    std::byte* place = room_.data() + kGuard + kRoom - bytes;
    const auto result = sender_ ? connection_->isend(place, bytes, memory_, request)
                                : connection_->irecv(place, bytes, memory_, request);
    if (result == nccl_net::kSuccess && request != nullptr) posted_.push_back(request);
  }

  void test() {
    for (auto request = posted_.begin(); request != posted_.end();) {
      bool done = false;
      if (connection_->test(**request, done) != nccl_net::kSuccess) return;
      request = done ? posted_.erase(request) : request + 1;
    }
  }

  bool sender_;
  std::unique_ptr<Ring> theirs_;
  FileDescriptor peer_;
  Memory memory_;
  std::vector<std::byte> room_ = std::vector<std::byte>(kRoom + 2 * kGuard, kFill);
  std::vector<Request*> posted_;
  std::unique_ptr<RingConnection> connection_;
};

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

void read_transport_ring(const std::string& input) {
  Packet hello;
  if (input.size() <= sizeof(hello)) return;
  std::memcpy(&hello, input.data(), sizeof(hello));
  Ringed ringed(hello, (input[sizeof(hello)] & 1) != 0);
  if (!ringed.let_in()) return;
  RingStep step;
  for (std::size_t at = sizeof(hello) + 1; at + sizeof(step) <= input.size(); at += sizeof(step)) {
    std::memcpy(&step, input.data() + at, sizeof(step));
    ringed.step(step);
  }
  ringed.check();
}

}  // namespace dynamiccl::fuzz
