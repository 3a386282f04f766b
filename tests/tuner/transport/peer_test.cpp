// Peers that are not what they should be.
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/tuner/transport/in_child.hpp"
#include "tests/tuner/transport/last_words.hpp"
#include "tests/tuner/transport/loaded_net.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring_connection.hpp"
#include "tuner/transport/tcp_connection.hpp"
#include "tuner/transport/wire.hpp"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
using dynamiccl::FileDescriptor;
using dynamiccl::testing::can_become;
using dynamiccl::testing::g_said;
using dynamiccl::testing::in_child;
using dynamiccl::testing::keep;
using dynamiccl::testing::LoadedNet;
using dynamiccl::testing::plugin_library;
using dynamiccl::testing::TestFolder;
using namespace dynamiccl::transport;
using namespace std::chrono_literals;
namespace nccl_net = dynamiccl::nccl_net;

namespace {

/// The plugin, whose init reads the variable.
std::string library_for(const TestFolder& folder) {
  setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
  return plugin_library();
}

/// A rank that listens in the folder, and what its handle says.
struct Listening {
  LoadedNet net;
  char handle[nccl_net::kHandleBytes] = {};
  void* listener = nullptr;
  Handle theirs{};
  std::string problem{};  ///< "" = it listens

  Listening(const TestFolder& folder, int version) : net(library_for(folder), version) {
    if (net.init(keep) != 0)
      problem = "init " + g_said;
    else if (net.listen(handle, &listener) != 0)
      problem = "listen " + g_said;
    std::memcpy(&theirs, handle, sizeof theirs);
  }
};

/// What the body says of a rank that listens in the folder, in a process of its own.
template <typename Body>
std::string beside_listener(const TestFolder& folder, Body&& body) {
  return in_child([&]() -> std::string {
    Listening here(folder, 11);
    return here.problem.empty() ? body(here) : here.problem;
  });
}

/// A receiver whose peer is this test: it holds the other end of the ring and of the socket.
struct Victim {
  std::unique_ptr<Ring> theirs;
  FileDescriptor socket;
  std::unique_ptr<RingConnection> connection;
  Memory memory;
  std::vector<std::byte> room = std::vector<std::byte>(3 * 4096, std::byte{0x77});

  Victim() {
    std::string problem;
    int ends[2] = {};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    track_socket(ends[0]);
    socket = FileDescriptor(ends[1]);
    theirs = Ring::make(4, 4096, problem);
    auto mine = Ring::map(FileDescriptor(dup(theirs->file())), 4, 4096, problem);
    REQUIRE(mine != nullptr);
    connection =
        RingConnection::make(false, FileDescriptor(ends[0]), std::move(mine), 32768, problem);
    REQUIRE(connection != nullptr);
  }
  /// Receives into the middle of the room.
  Request* post() {
    Request* request = nullptr;
    CHECK(connection->irecv(room.data() + 4096, 4096, memory, request) == nccl_net::kSuccess);
    return request;
  }
  void write_cell(std::uint32_t number, std::uint32_t bytes, std::uint64_t total) {
    Cell& cell = theirs->cell(number);
    std::memset(theirs->data(number), 0x11, 4096);
    cell.bytes.store(bytes);
    cell.total.store(total);
    cell.turn.store(number + 1);
  }
  [[nodiscard]] bool untouched_outside() const {
    for (std::size_t i = 0; i < room.size(); ++i)
      if ((i < 4096 || i >= 8192) && room[i] != std::byte{0x77}) return false;
    return true;
  }
};

/// A connection to the rank's port, as of one that shares no folder; an invalid one: none.
FileDescriptor call_by_port(const Handle& theirs) {
  std::string problem;
  const auto calling = TcpConnecting::begin(theirs, problem);
  FileDescriptor caller;
  for (int i = 0; i < 1000 && calling != nullptr && !caller.valid(); ++i)
    caller = calling->finish(problem);
  return caller;
}

/// Takes who comes. @returns "" with a receiver, what the rank says, or "waits"
std::string accept_one(const Listening& here, void*& receiver) {
  for (int i = 0; i < 1000 && receiver == nullptr; ++i)
    if (here.net.accept(here.listener, &receiver) != 0) return g_said;
  return receiver == nullptr ? "waits" : "";
}

bool set_loopback(bool up) {
  const FileDescriptor any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP : 0;
  return ioctl(any.get(), SIOCSIFFLAGS, &request) == 0;
}

/// A packet with as many descriptors of this process's input.
bool send_with_files(int socket, Packet packet, int files) {
  iovec part{&packet, sizeof packet};
  const std::vector<int> given(static_cast<std::size_t>(files), 0);
  const std::size_t bytes = given.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(bytes));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(bytes);
  std::memcpy(CMSG_DATA(header), given.data(), bytes);
  return sendmsg(socket, &message, 0) == static_cast<ssize_t>(sizeof packet);
}

}  // namespace

TEST_CASE("A message longer than its receive ends the connection and writes nothing outside") {
  Victim victim;
  Request* request = victim.post();
  victim.write_cell(0, 4096, 8192);
  bool done = false;
  CHECK(victim.connection->test(*request, done) == nccl_net::kRemoteError);
  CHECK_FALSE(done);
  CHECK(victim.untouched_outside());
}

TEST_CASE("A piece that claims another size ends the connection and writes nothing outside") {
  for (const std::uint32_t bytes : {0U, 99U, 4095U, 100'000U, 0xffffffffU}) {
    Victim victim;
    Request* request = victim.post();
    victim.write_cell(0, bytes, 4096);
    bool done = false;
    CHECK(victim.connection->test(*request, done) == nccl_net::kRemoteError);
    CHECK(victim.untouched_outside());
  }
}

TEST_CASE("A peer that talks where nothing is to be said is listened to no more") {
  Victim victim;
  Request* request = victim.post();
  CHECK(send_packet(victim.socket.get(), Packet{}));
  int result = nccl_net::kSuccess;
  bool done = false;
  for (int i = 0; i < 5000 && result == nccl_net::kSuccess; ++i) {
    result = victim.connection->test(*request, done);
    std::this_thread::sleep_for(1ms);
  }
  CHECK(result == nccl_net::kRemoteError);
  // Nobody reads on, however much it sends: no thread of this process is kept busy.
  const auto fill = [&] {
    while (send_packet(victim.socket.get(), Packet{})) {
    }
    return errno;
  };
  CHECK(fill() == EAGAIN);
  std::this_thread::sleep_for(50ms);
  CHECK_FALSE(send_packet(victim.socket.get(), Packet{}));
  CHECK(errno == EAGAIN);
}

TEST_CASE("A packet that brings more files than one leaves none behind") {
  int ends[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  const FileDescriptor here(ends[0]);
  const FileDescriptor there(ends[1]);
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  Packet packet;
  REQUIRE(send_with_files(there.get(), packet, 3));
  const auto before = files();
  {
    FileDescriptor file;
    CHECK(receive_packet(here.get(), packet, file) == Received::closed);
  }
  CHECK(files() == before);
}

TEST_CASE("What a peer wrote before its end is received, what it did not is an error") {
  Victim victim;
  Request* first = victim.post();
  Request* second = victim.post();
  victim.write_cell(0, 10, 10);
  victim.socket.reset();
  std::this_thread::sleep_for(50ms);
  bool done = false;
  CHECK(victim.connection->test(*first, done) == nccl_net::kSuccess);
  CHECK(done);
  CHECK(first->bytes == 10);
  int result = nccl_net::kSuccess;
  for (int i = 0; i < 1000 && result == nccl_net::kSuccess; ++i) {
    result = victim.connection->test(*second, done);
    std::this_thread::sleep_for(1ms);
  }
  CHECK(result == nccl_net::kRemoteError);
}

TEST_CASE("A peer that closes its connection is told from one whose process ended") {
  const auto said_after = [](bool closed) -> std::string {
    set_logger(keep);
    Victim victim;
    Request* request = victim.post();
    if (closed) say_closed(victim.socket.get());
    victim.socket.reset();
    int result = nccl_net::kSuccess;
    bool done = false;
    for (int i = 0; i < 5000 && result == nccl_net::kSuccess; ++i) {
      result = victim.connection->test(*request, done);
      std::this_thread::sleep_for(1ms);
    }
    set_logger(nullptr);
    return result == nccl_net::kSuccess ? "waits" : g_said;
  };
  CHECK_THAT(said_after(true), ContainsSubstring("closed this connection"));
  CHECK_THAT(said_after(false), ContainsSubstring("process ended"));
}

TEST_CASE("A rank that closes a connection says so") {
  Victim victim;
  victim.connection.reset();
  Packet packet;
  FileDescriptor file;
  CHECK(receive_packet(victim.socket.get(), packet, file) == Received::packet);
  CHECK(packet.message == Message::closed);
}

TEST_CASE("A connection goes on where its counters of cells begin anew") {
  constexpr std::uint32_t kFirst = 0xffffffff - 9;
  constexpr std::size_t kCellBytes = 4096;
  int ends[2] = {};
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  track_socket(ends[0]);
  track_socket(ends[1]);
  std::string problem;
  auto ring = Ring::make(4, kCellBytes, problem, kFirst);
  REQUIRE(ring != nullptr);
  auto mapped = Ring::map(FileDescriptor(dup(ring->file())), 4, kCellBytes, problem);
  REQUIRE(mapped != nullptr);
  const auto sender =
      RingConnection::make(true, FileDescriptor(ends[0]), std::move(ring), 32768, problem, kFirst);
  const auto receiver = RingConnection::make(false, FileDescriptor(ends[1]), std::move(mapped),
                                             32768, problem, kFirst);
  REQUIRE((sender != nullptr && receiver != nullptr));
  // One to five cells a message, so that some lie across the end, in every place of the ring.
  Memory memory;
  for (std::size_t number = 0; number < 24; ++number) {
    std::vector<std::byte> sent((number % 5) * kCellBytes + number + 1,
                                static_cast<std::byte>(number + 1));
    std::vector<std::byte> room(sent.size());
    Request* sending = nullptr;
    Request* receiving = nullptr;
    REQUIRE(receiver->irecv(room.data(), room.size(), memory, receiving) == nccl_net::kSuccess);
    REQUIRE(sender->isend(sent.data(), sent.size(), memory, sending) == nccl_net::kSuccess);
    bool out = false;
    bool in = false;
    for (int i = 0; i < 1000 && !(out && in); ++i) {
      if (!out) REQUIRE(sender->test(*sending, out) == nccl_net::kSuccess);
      if (!in) REQUIRE(receiver->test(*receiving, in) == nccl_net::kSuccess);
    }
    CHECK((out && in));
    CHECK(room == sent);
  }
}

TEST_CASE("More messages than there are slots wait, none is lost") {
  Victim victim;
  for (unsigned i = 0; i < kSlots; ++i) CHECK(victim.post() != nullptr);
  CHECK(victim.post() == nullptr);
}

TEST_CASE("Strangers at the socket are dropped, and the right peer still gets in") {
  const TestFolder folder;
  const std::string found = beside_listener(folder, [&](Listening& here) -> std::string {
    auto& [net, handle, listener, theirs, none] = here;
    std::string problem;
    const auto open = SharedFolder::open(folder.path(), problem);
    int error = 0;
    // One says nothing, one hangs up, one is no packet, one does not know the token, one brings no
    // ring.
    const FileDescriptor silent = open->connect(theirs.name, error);
    { const FileDescriptor brief = open->connect(theirs.name, error); }
    const FileDescriptor noise = open->connect(theirs.name, error);
    if (send(noise.get(), "hello", 5, 0) != 5) return "send";
    const FileDescriptor stranger = open->connect(theirs.name, error);
    send_packet(stranger.get(), Packet{});
    void* sender = nullptr;
    void* receiver = nullptr;
    for (int i = 0; i < 100; ++i)
      if (net.accept(listener, &receiver) != 0 || receiver != nullptr) return "let in " + g_said;
    if (net.connect(handle, &sender) != 0 || sender == nullptr) return "connect " + g_said;
    for (int i = 0; i < 100 && receiver == nullptr; ++i)
      if (net.accept(listener, &receiver) != 0) return "accept " + g_said;
    if (receiver == nullptr) return "not accepted";
    net.close_send(sender);
    net.close_recv(receiver);
    net.close_listen(listener);
    return "in";
  });
  CHECK(found == "in");
}

TEST_CASE("A rank without room for another open file is told so, not left waiting") {
  const TestFolder folder;
  // What a rank says to which somebody connects, with that many descriptors left.
  const auto said_with = [&](unsigned spare, bool by_tcp) {
    return beside_listener(folder, [&](Listening& here) -> std::string {
      std::string problem;
      const auto open = SharedFolder::open(folder.path(), problem);
      int error = 0;
      FileDescriptor caller;
      std::unique_ptr<TcpConnecting> by_port;
      if (by_tcp) {
        by_port = TcpConnecting::begin(here.theirs, problem);
        for (int i = 0; i < 1000 && !caller.valid(); ++i) caller = by_port->finish(problem);
      } else {
        caller = open->connect(here.theirs.name, error);
        Packet hello;
        hello.token = here.theirs.token;
        hello.cells = 4;
        hello.cell_bytes = 4096;
        const auto ring = Ring::make(4, 4096, problem);
        if (!send_packet(caller.get(), hello, ring->file())) return "send";
      }
      if (!caller.valid()) return "no caller " + problem;
      const int next = dup(0);
      ::close(next);
      const rlimit limit{static_cast<rlim_t>(next) + spare, 4096};
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return "no limit";
      void* receiver = nullptr;
      const std::string said = accept_one(here, receiver);
      return said.empty() ? "in" : said;
    });
  };
  CHECK_THAT(said_with(0, false), ContainsSubstring("another rank's connection: Too many open") &&
                                      ContainsSubstring("ulimit -n 65536"));
  CHECK_THAT(said_with(1, false), ContainsSubstring("another rank's ring: Too many open"));
  // Sanitizers open files of their own.
  CHECK(said_with(8, false) == "in");
  CHECK_THAT(said_with(0, true), ContainsSubstring("another rank's connection: Too many open"));
  CHECK(said_with(8, true) == "in");
}

TEST_CASE("A rank whose peer has no ring for it is told so, not left waiting") {
  const TestFolder folder;
  // The peer meets a limit, or the system keeps its ring back (here: there are three).
  const auto said_where = [&](auto&& peer) {
    return beside_listener(folder, [&](Listening& here) -> std::string {
      const std::string problem = peer(here);
      if (!problem.empty()) return problem;
      void* receiver = nullptr;
      const std::string said = accept_one(here, receiver);
      return said.empty() ? "in" : said;
    });
  };
  CHECK_THAT(said_where([](Listening& here) -> std::string {
               const rlimit limit{65536, 65536};
               void* sender = nullptr;
               if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
               return here.net.connect(here.handle, &sender) == 0 ? "connects" : "";
             }),
             ContainsSubstring("the other rank could not make a connection"));
  FileDescriptor caller;
  CHECK_THAT(said_where([&](Listening& here) -> std::string {
               std::string problem;
               int error = 0;
               caller =
                   SharedFolder::open(folder.path(), problem)->connect(here.theirs.name, error);
               Packet hello;
               hello.token = here.theirs.token;
               return send_with_files(caller.get(), hello, 3) ? "" : "send";
             }),
             ContainsSubstring("ring did not come with its greeting"));
}

TEST_CASE("Strangers who say nothing keep nobody else from the port") {
  const TestFolder folder;
  const std::string found = beside_listener(folder, [&](Listening& here) -> std::string {
    if (here.theirs.family != AF_INET) return "no IPv4";
    std::string problem;
    std::vector<FileDescriptor> strangers;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = here.theirs.port;
    std::memcpy(&address.sin_addr, here.theirs.address.data(), sizeof address.sin_addr);
    void* receiver = nullptr;
    for (int i = 0; i < 70; ++i) {
      strangers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(strangers.back().get(), reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) != 0)
        return "stranger";
      if (here.net.accept(here.listener, &receiver) != 0 || receiver != nullptr) return "let in";
    }
    FileDescriptor caller = call_by_port(here.theirs);
    const std::string said = accept_one(here, receiver);
    return said.empty() ? "in" : said;
  });
  if (found == "no IPv4") SKIP("no IPv4 address here");
  CHECK(found == "in");
}

TEST_CASE("A rank that takes nothing by TCP for long is no lost host", "[long]") {
  const TestFolder folder;
  const std::string found = beside_listener(folder, [&](Listening& here) -> std::string {
    std::string problem;
    FileDescriptor caller = call_by_port(here.theirs);
    void* receiver = nullptr;
    if (const std::string said = accept_one(here, receiver); !said.empty()) return said;
    const auto sender = TcpConnection::make(true, std::move(caller), std::size_t{1} << 30, problem);
    std::vector<std::byte> data(std::size_t{64} << 20, std::byte{7});
    std::vector<std::byte> room(data.size());
    Memory memory;
    Request* sent = nullptr;
    bool done = false;
    if (sender->isend(data.data(), data.size(), memory, sent) != nccl_net::kSuccess) return "isend";
    // Longer than is_lost() waits for a host that is silent.
    for (const auto end = std::chrono::steady_clock::now() + 14s;
         std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms))
      if (sender->test(*sent, done) != nccl_net::kSuccess) return "lost before it was received";
    if (done) return "nothing waited";
    void* request = nullptr;
    bool received = false;
    std::size_t bytes = 0;
    if (here.net.irecv(receiver, room.data(), room.size(), nullptr, &request) != 0) return "irecv";
    for (const auto end = std::chrono::steady_clock::now() + 60s;
         (!received || !done) && std::chrono::steady_clock::now() < end;) {
      if (!received && here.net.test(request, received, bytes) != 0) return "receiver: " + g_said;
      if (!done && sender->test(*sent, done) != nccl_net::kSuccess) return "sender";
    }
    return received && done && room == data ? "right" : "not received";
  });
  CHECK(found == "right");
}

TEST_CASE("A host that is lost ends a connection by TCP, whether it took data or not", "[long]") {
  if (geteuid() != 0) SKIP("a network namespace of its own needs root");
  const auto seconds_until_told = [](bool taking) {
    const TestFolder folder;
    return in_child([&]() -> std::string {
      if (unshare(CLONE_NEWNET) != 0 || !set_loopback(true)) return "no network";
      Listening here(folder, 11);
      if (!here.problem.empty()) return here.problem;
      std::string problem;
      FileDescriptor caller = call_by_port(here.theirs);
      void* receiver = nullptr;
      if (const std::string said = accept_one(here, receiver); !said.empty()) return said;
      const auto sender = TcpConnection::make(true, std::move(caller), 4096, problem);
      std::vector<std::byte> data(std::size_t{512} << 20);
      std::vector<std::byte> room(taking ? data.size() : 0);
      Memory memory;
      Request* sent = nullptr;
      void* request = nullptr;
      bool done = false;
      std::size_t bytes = 0;
      if (sender->isend(data.data(), data.size(), memory, sent) != nccl_net::kSuccess ||
          (taking && here.net.irecv(receiver, room.data(), room.size(), nullptr, &request) != 0))
        return "no messages";
      const auto begin = std::chrono::steady_clock::now();
      for (bool up = true;;) {
        const auto now = std::chrono::steady_clock::now() - begin;
        if (up && now > (taking ? 10ms : 500ms)) up = !set_loopback(false);
        if (sender->test(*sent, done) != nccl_net::kSuccess)
          return up ? "too early" : now < 20s ? "in time" : "after " + std::to_string(now / 1s);
        if (done) return "all went over";
        if (now > 60s) return "not told";
        if (taking && up && here.net.test(request, done, bytes) != 0) return "receiver";
      }
    });
  };
  for (const bool taking : {true, false}) {
    const std::string found = seconds_until_told(taking);
    if (found == "no network") SKIP("no network namespaces here");
    INFO((taking ? "taking: " : "not taking: ") << found);
    CHECK(found == "in time");
  }
}

TEST_CASE("A hello without a ring is refused") {
  const TestFolder folder;
  const std::string found = in_child([&]() -> std::string {
    Listening here(folder, 10);
    if (!here.problem.empty()) return here.problem;
    auto& [net, handle, listener, theirs, none] = here;
    std::string problem;
    int error = 0;
    const FileDescriptor peer =
        SharedFolder::open(folder.path(), problem)->connect(theirs.name, error);
    Packet hello;
    hello.token = theirs.token;
    hello.cells = 16;
    hello.cell_bytes = 1 << 17;
    send_packet(peer.get(), hello);
    void* receiver = nullptr;
    for (int i = 0; i < 10; ++i)
      if (net.accept(listener, &receiver) != 0) return g_said;
    return "no answer";
  });
  CHECK_THAT(found, ContainsSubstring("not one of this transport's"));
}

TEST_CASE("A rank of another version, or that copies by another way, is refused with what to set") {
  const TestFolder folder;
  const auto said_of = [&](auto&& change) {
    return beside_listener(folder, [&](Listening& here) -> std::string {
      auto& [net, handle, listener, theirs, none] = here;
      change(theirs);
      std::memcpy(handle, &theirs, sizeof theirs);
      void* sender = nullptr;
      const std::string said = net.connect(handle, &sender) == 0 ? "connects" : g_said;
      net.close_listen(listener);
      return said;
    });
  };
  CHECK_THAT(said_of([](Handle& handle) { ++handle.version; }),
             ContainsSubstring("does not use this version"));
  CHECK_THAT(said_of([](Handle& handle) { handle.magic = 0; }),
             ContainsSubstring("NCCL_NET_PLUGIN and DYNAMICCL_SHARED_FOLDER alike"));
  CHECK_THAT(said_of([](Handle& handle) { handle.device = 1; }),
             ContainsSubstring("DYNAMICCL_TRANSPORT_DEVICE=0 on all ranks"));
  CHECK_THAT(said_of([](Handle& handle) { ++handle.name; }),
             ContainsSubstring("Has its process ended?"));
  CHECK(said_of([](Handle&) {}) == "connects");
}

TEST_CASE("Without leave for threads a connection is an error each time, never one that waits") {
  constexpr uid_t kUser = 12346;
  if (!can_become(kUser)) SKIP("root makes the user whom a limit of processes holds for");
  const TestFolder folder;
  REQUIRE(chown(folder.path().c_str(), kUser, kUser) == 0);
  const std::string found = in_child([&]() -> std::string {
    const rlimit none{1, 1};
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || setresuid(kUser, kUser, kUser) != 0) return "user";
    setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
    setenv("DYNAMICCL_TRANSPORT_THREADS", "2", 1);
    const LoadedNet net(plugin_library(), 11);
    if (net.init(keep) != 0) return "init " + g_said;
    char handle[nccl_net::kHandleBytes] = {};
    void* listener = nullptr;
    if (net.listen(handle, &listener) != 0) return "listen " + g_said;
    std::string said = g_said + "; ";
    for (int i = 0; i < 2; ++i) {
      void* sender = nullptr;
      if (net.connect(handle, &sender) == 0) return said + "connects";
      said += g_said + "; ";
    }
    net.close_listen(listener);
    return said;
  });
  CHECK_THAT(found, ContainsSubstring("only 0 of 2 copy threads"));
  CHECK_THAT(found, Matches(".*(cannot start the thread that watches peers.*){2}"));
}

TEST_CASE("A start removes what ranks left that were killed before it") {
  const TestFolder folder;
  std::string problem;
  const auto open = SharedFolder::open(folder.path(), problem);
  { const FileDescriptor before = open->listen(1, problem); }
  { const FileDescriptor just_now = open->listen(2, problem); }
  const std::string old = folder.path() + "/dynamiccl-0000000000000001.sock";
  const timespec minute_ago[2] = {{std::time(nullptr) - 60, 0}, {std::time(nullptr) - 60, 0}};
  REQUIRE(utimensat(AT_FDCWD, old.c_str(), minute_ago, 0) == 0);
  CHECK(in_child([&] {
          setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
          return std::to_string(LoadedNet(plugin_library(), 11).init(keep));
        }) == "0");
  CHECK(access(old.c_str(), F_OK) != 0);
  // A rank that has bound its socket but does not listen yet looks like this.
  CHECK(access((folder.path() + "/dynamiccl-0000000000000002.sock").c_str(), F_OK) == 0);
}

TEST_CASE("Without a folder NCCL takes its own network; a wrong one fails the first connection") {
  CHECK(in_child([] {
          unsetenv("DYNAMICCL_SHARED_FOLDER");
          const LoadedNet net(plugin_library(), 11);
          return std::to_string(net.init(keep));
        }) == std::to_string(nccl_net::kSystemError));
  CHECK_THAT(in_child([] {
               setenv("DYNAMICCL_SHARED_FOLDER", "/nowhere", 1);
               const LoadedNet net(plugin_library(), 11);
               char handle[nccl_net::kHandleBytes] = {};
               void* listener = nullptr;
               if (net.init(keep) != 0) return std::string("init");
               g_said.clear();
               return net.listen(handle, &listener) == 0 ? std::string("listens") : g_said;
             }),
             ContainsSubstring("cannot open the shared folder /nowhere"));
}

TEST_CASE("Memory of GPUs is asked for only where copies between them cannot stop a program") {
  const TestFolder folder;
  const auto support = [&](const char* loading, const char* level, const char* device) {
    return in_child([&]() -> std::string {
      setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
      setenv("CUDA_MODULE_LOADING", loading, 1);
      setenv("NCCL_NET_GDR_LEVEL", level, 1);
      setenv("DYNAMICCL_TRANSPORT_DEVICE", device, 1);
      const LoadedNet net(plugin_library(), 11);
      if (net.init(keep) != 0) return "init";
      char handle[nccl_net::kHandleBytes] = {};
      void* listener = nullptr;
      g_said.clear();
      return std::to_string(net.pointer_support()) +
             (net.listen(handle, &listener) == 0 ? "" : " " + g_said);
    });
  };
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (path == nullptr || std::strstr(path, "fake_cuda") == nullptr)
    SKIP("needs the stand-in for CUDA's driver in LD_LIBRARY_PATH, as ctest sets it");
  CHECK(support("EAGER", "SYS", "1") == "3");
  CHECK(support("EAGER", "SYS", "0") == "1");
  CHECK(support("EAGER", "SYS", "") == "1");
  CHECK_THAT(support("LAZY", "SYS", "1"), ContainsSubstring("CUDA_MODULE_LOADING=EAGER"));
  CHECK_THAT(support("EAGER", "PHB", "1"), ContainsSubstring("NCCL_NET_GDR_LEVEL=SYS"));
}

TEST_CASE("A message beyond what the network promises is refused with its size") {
  const TestFolder folder;
  for (const int version : {8, 9, 10, 11}) {
    const std::size_t bytes = (std::size_t{1} << 30) + 1;
    const std::string said = in_child([&]() -> std::string {
      setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
      const LoadedNet net(plugin_library(), version);
      if (net.init(keep) != 0) return "init";
      void* request = nullptr;
      // Refused before it is looked at by any connection.
      const int result = net.isend(nullptr, nullptr, bytes, nullptr, &request);
      return result == nccl_net::kInvalidArgument ? g_said : std::to_string(result);
    });
    CHECK_THAT(said, ContainsSubstring(std::to_string(bytes)) && ContainsSubstring("1073741824"));
  }
}

TEST_CASE("Receives are not grouped, and saying so is better than losing one") {
  const TestFolder folder;
  CHECK(in_child([&]() -> std::string {
          setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
          const LoadedNet net(plugin_library(), 11);
          if (net.init(keep) != 0) return "init";
          void* data[2] = {};
          std::size_t bytes[2] = {};
          void* memories[2] = {};
          void* request = nullptr;
          return std::to_string(net.irecv_group(nullptr, 2, data, bytes, memories, &request));
        }) == std::to_string(nccl_net::kInvalidArgument));
}
