// Ranks' end (workers/run/record_link) and the orchestrator's meet here over real sockets.
#include "orchestrator/launch/record_server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <thread>

#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/decisions_file.hpp"
#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "workers/run/record_link.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
constexpr Micros kGrace{5e6};

struct Folder {
  std::string path = fs::temp_directory_path() / "record-server-XXXXXX";
  Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::vector<std::string> lines(int rank) const {
    std::ifstream file(path + "/" + record_file_name(rank));
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
};

RecordsEndpoint endpoint_of(const RecordServer& server, int port = 0) {
  return {{"127.0.0.1"}, port == 0 ? server.port() : port, server.token()};
}

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(60); }

/// Says what it likes.
struct Raw {
  FrameSocket socket;
  explicit Raw(const RecordsEndpoint& endpoint) { REQUIRE(socket.connect(endpoint, soon()) == ""); }
  void say(FrameKind kind, std::string_view payload, std::uint64_t sequence = 0, int rank = 0) {
    FrameHeader header;
    header.kind = kind;
    header.sequence = sequence;
    header.rank = rank;
    REQUIRE(socket.send(frame(header, payload), soon()));
  }
  std::pair<FrameHeader, std::string> answer() {
    auto got = socket.receive(soon());
    REQUIRE(got);
    return *got;
  }
};

/// Passes bytes on, and cuts both ways off after as many as chance says, in the middle of a frame
/// as likely as not, until it has done so often enough.
class Cutter {
 public:
  /// @param byes that are cut off before they are passed on, and the connection with them
  Cutter(int to, int cuts, int byes = 0) : to_(to), left_(cuts), byes_(byes) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = loopback(0);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    socklen_t length = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~Cutter() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (auto& one : pairs_) one.join();
    close(listener_);
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int left() const { return left_; }
  [[nodiscard]] int byes() const { return byes_; }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }
  void accept_all() {
    for (unsigned seed = 1; !stop_; ++seed) {
      const int from = accept(listener_, nullptr, nullptr);
      if (from >= 0) pairs_.emplace_back([this, from, seed] { pass_on(from, seed); });
    }
  }
  void pass_on(int from, unsigned seed) {
    std::mt19937 random(seed);
    const int to = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback(to_);
    bool open = connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    auto most = static_cast<std::ptrdiff_t>(200 + random() % 20000);
    while (open && !stop_) {
      pollfd waits[2] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
      if (poll(waits, 2, 50) <= 0) continue;
      for (int side = 0; side < 2 && open; ++side) {
        if (waits[side].revents == 0) continue;
        char part[512];
        const ssize_t n = recv(side == 0 ? from : to, part, sizeof(part), 0);
        FrameHeader header;
        if (side == 0 && n == sizeof(header)) std::memcpy(&header, part, sizeof(header));
        if (header.kind == FrameKind::bye && byes_ > 0) {
          --byes_;
          open = false;
        }
        open = open && n > 0 &&
               send(side == 0 ? to : from, part, static_cast<std::size_t>(n), MSG_NOSIGNAL) == n;
        most -= std::max<ssize_t>(n, 0);
        if (open && most < 0 && left_ > 0) {
          --left_;
          open = false;
        }
      }
    }
    close(from);
    close(to);
  }

  int to_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> left_;
  std::atomic<int> byes_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> pairs_;
  std::thread accepting_;
};

/// Accepts at 127.0.0.2 and closes.
class Stranger {
 public:
  explicit Stranger(int port) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    thread_ = std::thread([this] {
      for (int file = 0; (file = accept(listener_, nullptr, nullptr)) >= 0;) {
        ++came_;
        close(file);
      }
    });
  }
  ~Stranger() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  [[nodiscard]] int came() const { return came_; }

 private:
  int listener_ = -1;
  std::atomic<int> came_{0};
  std::thread thread_;
};

}  // namespace

TEST_CASE("eight writers lose and double nothing over a hundred cut connections", "[threads]") {
  constexpr int kWriters = 8;
  constexpr int kLines = 120;
  const Folder folder;
  RecordServer server({folder.path, "{}", kWriters});
  std::uint64_t connections = 0;
  {
    Cutter cutter(server.port(), 100);
    std::vector<std::thread> writers;
    std::atomic<std::uint64_t> made{0};
    for (int rank = 0; rank < kWriters; ++rank)
      writers.emplace_back([&, rank] {
        RecordLink link(endpoint_of(server, cutter.port()), rank, "refuse");
        for (int i = 0; i < kLines; ++i)
          link.write(fmt::format("{}-{}-{}", rank, i, std::string(3000, 'x')));
        made += link.connections();
      });
    for (auto& writer : writers) writer.join();
    CHECK(cutter.left() == 0);
    connections = made;
  }
  CHECK(server.finish(kGrace).empty());
  CHECK(connections >= 100);
  for (int rank = 0; rank < kWriters; ++rank) {
    const auto lines = folder.lines(rank);
    REQUIRE(lines.size() == kLines);
    for (int i = 0; i < kLines; ++i)
      CHECK(lines[static_cast<std::size_t>(i)].starts_with(fmt::format("{}-{}-", rank, i)));
  }
}

TEST_CASE("doubled and torn lines are put right by their numbers, a missing one is refused") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 2});
  const std::string hello = server.token() + " me refuse";
  {
    Raw rank(endpoint_of(server));
    rank.say(FrameKind::hello, hello);
    CHECK(rank.answer().first.kind == FrameKind::welcome);
    rank.say(FrameKind::line, "one", 1);
    rank.say(FrameKind::line, "one", 1);
    for (int i = 0; i < 2; ++i) CHECK(rank.answer().first.sequence == 1);
    FrameHeader torn;
    torn.kind = FrameKind::line;
    torn.sequence = 2;
    const std::string whole = frame(torn, "two");
    REQUIRE(rank.socket.send(whole.substr(0, whole.size() - 2), soon()));
  }
  {
    Raw ahead(endpoint_of(server));
    ahead.say(FrameKind::hello, hello);
    CHECK(ahead.answer().first.sequence == 1);
    ahead.say(FrameKind::line, "three", 3);
    const auto refused = ahead.answer();
    CHECK(refused.first.kind == FrameKind::refused);
    CHECK(refused.second == "line 3 came, and 2 is missing");
  }
  Raw again(endpoint_of(server));
  again.say(FrameKind::hello, hello);
  CHECK(again.answer().first.sequence == 1);
  again.say(FrameKind::line, "two", 2);
  CHECK(again.answer().first.sequence == 2);
  again.say(FrameKind::bye, "");
  again.socket.close();
  CHECK(server.finish(kGrace).empty());
  CHECK(folder.lines(0) == std::vector<std::string>{"one", "two"});
  CHECK(server.counts().again == 1);
}

TEST_CASE("a writer that does not come back is named") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 4});
  {
    Raw rank(endpoint_of(server));
    rank.say(FrameKind::hello, server.token() + " me refuse", 0, 3);
    rank.answer();
    rank.say(FrameKind::line, "one", 1, 3);
    rank.answer();
  }
  const auto problems = server.finish(kGrace);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], ContainsSubstring("rank 3's connection from 127.0.0.1 broke off after 1 "
                                            "line and did not come back"));
}

TEST_CASE("who has just come is heard when the ranks have ended") {
  // On one core the server comes to it only when this thread waits for its end.
  cpu_set_t usual;
  REQUIRE(sched_getaffinity(0, sizeof usual, &usual) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  for (int i = 0; i < 50; ++i) {
    const Folder folder;
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    RecordServer server({folder.path, "{}", 1});
    {
      Raw rank(endpoint_of(server));
      rank.say(FrameKind::hello, server.token() + " me refuse");
      rank.say(FrameKind::line, "one", 1);
    }
    server.finish(kGrace);
    REQUIRE(sched_setaffinity(0, sizeof usual, &usual) == 0);
    REQUIRE(folder.lines(0) == std::vector<std::string>{"one"});
  }
}

TEST_CASE("a writer whose farewell is cut off says it again") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  Cutter cutter(server.port(), 0, 2);
  {
    RecordLink link(endpoint_of(server, cutter.port()), 0, "refuse");
    link.write("one");
  }
  CHECK(cutter.byes() == 0);
  CHECK(server.finish(kGrace).empty());
}

TEST_CASE("a writer whose last record is stored lacks nothing, whatever became of its farewell") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 2});
  const std::string done = to_json_line(DoneRecord{0, 1.0, 1});
  {
    Raw whole(endpoint_of(server));
    whole.say(FrameKind::hello, server.token() + " me refuse");
    whole.answer();
    whole.say(FrameKind::line, done, 1);
    whole.answer();
    Raw late(endpoint_of(server));
    late.say(FrameKind::hello, server.token() + " me refuse", 0, 1);
    late.answer();
    late.say(FrameKind::line, done, 2, 1);
    CHECK(late.answer().first.sequence == 0);
  }
  const auto problems = server.finish(kGrace);
  REQUIRE(problems.size() == 1);
  CHECK_THAT(problems[0], ContainsSubstring("rank 1's connection"));
}

TEST_CASE("a disk that is full ends the writer and leaves whole lines") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const std::string hello = server.token() + " me refuse";
  Raw rank(endpoint_of(server));
  rank.say(FrameKind::hello, hello);
  rank.answer();
  rank.say(FrameKind::line, "one", 1);
  rank.answer();
  const rlimit full{65536, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
  rank.say(FrameKind::line, std::string(100'000, 'x'), 2);
  const auto answer = rank.answer();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(answer.first.kind == FrameKind::refused);
  CHECK(folder.lines(0) == std::vector<std::string>{"one"});
  // Later lines would follow a gap.
  Raw again(endpoint_of(server));
  again.say(FrameKind::hello, hello);
  CHECK(again.answer().first.kind == FrameKind::refused);
  const auto problems = server.finish(kGrace);
  REQUIRE_FALSE(problems.empty());
  CHECK_THAT(problems[0], ContainsSubstring("rank0.jsonl: cannot be written: File too large"));
}

TEST_CASE("strangers that say nothing keep no rank out") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  std::list<Raw> strangers;
  for (int i = 0; i < 100; ++i) strangers.emplace_back(endpoint_of(server));
  Raw rank(endpoint_of(server));
  rank.say(FrameKind::hello, server.token() + " me refuse");
  CHECK(rank.answer().first.kind == FrameKind::welcome);
}

TEST_CASE("an address at which something else answers is left for the next, once") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  Cutter way(server.port(), 1);
  const Stranger stranger(way.port());
  const RecordsEndpoint endpoint{{"127.0.0.2", "127.0.0.1"}, way.port(), server.token()};
  {
    RecordLink link(endpoint, 0, "refuse");
    CHECK(stranger.came() == 1);
    // Its connection is cut.
    for (int i = 0; i < 20; ++i) link.write(std::string(3000, 'x'));
    CHECK(way.left() == 0);
    CHECK(link.connections() == 3);
  }
  CHECK(stranger.came() == 1);
  RecordStore(endpoint).set("key", "value");
  CHECK(stranger.came() == 2);
  CHECK(fetch_run(endpoint).address == "127.0.0.1");
  CHECK(server.finish(kGrace).empty());
}

TEST_CASE("a file at the limit is taken with its name, and one beyond it is refused by name") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  RecordLink link(endpoint_of(server), 0, "refuse");
  link.send_file(kDecisionsFile, std::string(kMostFileBytes, 'd'));
  CHECK(fs::file_size(folder.path + "/" + kDecisionsFile) == kMostFileBytes);
  CHECK_THROWS_WITH(link.send_file(kDecisionsFile, std::string(kMostFileBytes + 1, 'd')),
                    ContainsSubstring(kDecisionsFile) && ContainsSubstring("is the most") &&
                        ContainsSubstring("--out"));
  link.write("still there");
  CHECK(folder.lines(0) == std::vector<std::string>{"still there"});
}

TEST_CASE("what a connection cannot carry beside run.json is said, to ranks and in the launch") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  const auto file = [&](const std::string& name, std::uintmax_t bytes) {
    std::ofstream(folder.path + "/" + name);
    fs::resize_file(folder.path + "/" + name, bytes);
  };
  SECTION("a file at the limit is handed out") {
    file("table", kMostFileBytes);
    const auto run = fetch_run(endpoint_of(server));
    REQUIRE(run.files.size() == 1);
    CHECK(run.files[0].second.size() == kMostFileBytes);
    CHECK(server.finish(kGrace).empty());
  }
  SECTION("one beyond it") {
    file("table", kMostFileBytes + 1);
    CHECK_THROWS_WITH(fetch_run(endpoint_of(server)),
                      ContainsSubstring("/table has 67108865 bytes") && ContainsSubstring("--out"));
    CHECK(server.finish(kGrace).size() == 1);
  }
  SECTION("too many of them") {
    for (const char* name : {"a", "b", "c", "d", "e"}) file(name, kMostFileBytes);
    CHECK_THROWS_WITH(
        fetch_run(endpoint_of(server)),
        ContainsSubstring("have 335544322 bytes together") && ContainsSubstring("--out"));
    CHECK(server.finish(kGrace).size() == 1);
  }
}

TEST_CASE("records that did not get through are told on a rank's stderr") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  auto link = std::make_unique<RecordLink>(endpoint_of(server), 0, "refuse");
  link->write("one");
  CHECK_THROWS_AS(link->write("two\nlines"), Error);
  const std::string path = folder.path + "/stderr";
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  REQUIRE(std::freopen(path.c_str(), "w", stderr) != nullptr);
  link.reset();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::ifstream file(path);
  const std::string said{std::istreambuf_iterator<char>(file), {}};
  CHECK_THAT(said, ContainsSubstring("rank 0: 1 record of 41 bytes did not reach where this rank "
                                     "was started: not taken: a record is one line"));
  // What got through is nothing to tell.
  CHECK(folder.lines(0) == std::vector<std::string>{"one"});
}

TEST_CASE("what waits takes no longer where there is nobody to connect to") {
  const Folder folder;
  auto server = std::make_unique<RecordServer>(RecordServer::Launch{folder.path, "{}", 1});
  const int port = server->port();
  RecordLink link(endpoint_of(*server), 0, "refuse");
  link.write("one");
  server.reset();
  const auto began = Clock::now();
  // Eighty seconds over the slowest link, two where nobody is there: between them, whatever else
  // the machine does.
  link.write(std::string(40'000'000, 'x'));
  CHECK(Clock::now() - began < std::chrono::seconds(60));
  // Somebody who refuses ends it, not thirty seconds.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(listen(listener, 1) == 0);
  std::thread refusing([&] {
    const int file = accept(listener, nullptr, nullptr);
    FrameHeader header;
    header.kind = FrameKind::refused;
    const std::string bytes = frame(header, "gone");
    static_cast<void>(send(file, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    char rest[256];
    while (recv(file, rest, sizeof(rest), 0) > 0) {
    }
    close(file);
  });
  CHECK_THROWS_WITH(link.write("three"), ContainsSubstring("gone"));
  shutdown(listener, SHUT_RDWR);
  refusing.join();
  close(listener);
}

TEST_CASE("many small files beside run.json are handed out in the time of their bytes") {
  const Folder folder;
  constexpr int kFiles = 3000;
  for (int i = 0; i < kFiles; ++i) std::ofstream(fmt::format("{}/table{}", folder.path, i)) << i;
  RecordServer server({folder.path, "{}", 1});
  const auto began = Clock::now();
  const auto run = fetch_run(endpoint_of(server));
  // Two minutes where each waits for an acknowledgement that is put off, else less than a second.
  CHECK(Clock::now() - began < std::chrono::seconds(60));
  CHECK(run.files.size() == kFiles);
  for (const auto& [name, bytes] : run.files) CHECK("table" + bytes == name);
}

TEST_CASE("signal handlers find no connection that was closed") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 1});
  RecordLink link(endpoint_of(server), 0, "refuse");
  link.write("one");
  CHECK(RecordLink::live_descriptor() >= 0);
  CHECK_THROWS_AS(link.write("two\nlines"), Error);
  CHECK(RecordLink::live_descriptor() == -1);
}

TEST_CASE("who has not the launch's token, or says what no rank says, gets nothing") {
  const Folder folder;
  RecordServer server({folder.path, "{\"secret\":1}", 2});
  const auto refused = [&](FrameKind kind, const std::string& payload, int rank = 0) {
    Raw stranger(endpoint_of(server));
    stranger.say(kind, payload, 0, rank);
    const auto answer = stranger.answer();
    CHECK(answer.first.kind == FrameKind::refused);
    CHECK_FALSE(stranger.socket.receive(soon()));
    CHECK_FALSE(stranger.socket.alive());
    return answer.second;
  };
  std::string wrong = server.token();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  CHECK(refused(FrameKind::hello, wrong + " me read") == "not of this launch");
  CHECK(refused(FrameKind::hello, "") == "not of this launch");
  CHECK(refused(FrameKind::line, server.token() + " me refuse") == "not of this launch");
  CHECK(refused(FrameKind::hello, std::string(kMostHelloBytes + 1, 'x')) ==
        "this is no frame of a rank");
  CHECK(refused(FrameKind::hello, server.token() + " me refuse", 2) == "no rank 2 among 2");
  {
    Raw rank(endpoint_of(server));
    rank.say(FrameKind::hello, server.token() + " me refuse");
    rank.answer();
    CHECK(refused(FrameKind::hello, server.token() + " other refuse") ==
          "another process claims rank 0");
    CHECK_THROWS_WITH(RecordLink(endpoint_of(server), 0, "refuse"),
                      ContainsSubstring("another process claims rank 0"));
    rank.say(FrameKind::line, "two\nlines", 1);
    CHECK(rank.answer().first.kind == FrameKind::refused);
  }
  {
    Raw rank(endpoint_of(server));
    rank.say(FrameKind::hello, server.token() + " long append", 0, 1);
    rank.answer();
    FrameHeader header;
    header.kind = FrameKind::line;
    header.length = kMostLineBytes + 1;
    REQUIRE(rank.socket.send(std::string(reinterpret_cast<const char*>(&header), sizeof(header)),
                             soon()));
    CHECK(rank.answer().first.kind == FrameKind::refused);
  }
  CHECK_THROWS_AS(fetch_run({{"127.0.0.1"}, server.port(), wrong}), Error);
  server.finish(kGrace);
  CHECK(folder.lines(0).empty());
}

TEST_CASE("ranks fetch run.json and what lies beside it, and meet by keys and values") {
  const Folder folder;
  std::ofstream(folder.path + "/tuner.table") << "a\nb\n";
  std::ofstream(folder.path + "/rank0.jsonl") << "no file of theirs\n";
  RecordServer server({folder.path, "{\"x\": 1}", 2});
  const auto run = fetch_run(endpoint_of(server));
  CHECK(run.run_json == "{\"x\": 1}");
  REQUIRE(run.files.size() == 1);
  CHECK(run.files[0] == std::pair<std::string, std::string>{"tuner.table", "a\nb\n"});

  RecordStore store(endpoint_of(server));
  CHECK_FALSE(store.get("rank1", std::chrono::milliseconds(20)));
  const std::string bytes("\0\n\xff", 3);
  std::thread other([&] {
    usleep(20000);
    RecordStore(endpoint_of(server)).set("rank1", bytes);
  });
  CHECK(store.get("rank1", std::chrono::seconds(60)) == bytes);
  other.join();
}

TEST_CASE("what lies beside run.json is written whole on a rank's node, or refused with its path") {
  const Folder folder;
  keep_files({"", "{}", {{"tuner.table", "a\nb\n"}, {"../stray", "x"}}}, folder.path);
  std::ifstream file(folder.path + "/tuner.table");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "a\nb\n");
  CHECK_FALSE(fs::exists(folder.path + "/../stray"));
  fs::create_symlink("/dev/full", folder.path + "/full.table");
  CHECK_THROWS_WITH(keep_files({"", "{}", {{"full.table", "a"}}}, folder.path),
                    ContainsSubstring(folder.path + "/full.table: cannot be written: No space"));
  CHECK_THROWS_WITH(keep_files({"", "{}", {{std::string(300, 'x'), "a"}}}, folder.path),
                    ContainsSubstring("File name too long"));
}

TEST_CASE("ranks whose MPI does not end leave no folder on their node") {
#ifdef DYNAMICCL_MPICH_WORKER
  if (find_program("mpirun.mpich").empty())
    SKIP("mpirun.mpich is not in PATH: apt-get install mpich");
  const Folder folder;
  const Folder node;
  RunConfig config;
  config.launch_id = "hangs";
  config.backend = Backend::mpich;
  config.ranks = 2;
  config.output_dir = folder.path;
  RecordServer server({folder.path, to_json(config), 2});
  const auto ended =
      run_command({"env", "TMPDIR=" + node.path, "LD_PRELOAD=" DYNAMICCL_FINALIZE_THAT_HANGS,
                   std::string(kRecordsToken) + "=" + server.token(), "mpirun.mpich", "-n", "2",
                   DYNAMICCL_MPICH_WORKER, fmt::format("tcp://127.0.0.1:{}", server.port())});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(server.finish(kGrace).empty());
  CHECK_FALSE(folder.lines(1).empty());
  CHECK(fs::is_empty(node.path));
#else
  SKIP("this build has no worker of MPICH, or sanitizers that must be loaded first");
#endif
}

TEST_CASE("what ranks are given in run.json's place is read, or refused") {
  const auto endpoint = parse_records_endpoint("tcp://10.0.0.1,172.17.0.1:4567", "t");
  CHECK(endpoint.addresses == std::vector<std::string>{"10.0.0.1", "172.17.0.1"});
  CHECK(endpoint.port == 4567);
  for (const char* bad : {"tcp://:1", "tcp://a", "tcp://a:0", "tcp://a:99999", "x"})
    CHECK_THROWS_AS(parse_records_endpoint(bad, "t"), Error);
  CHECK_THROWS_AS(parse_records_endpoint("tcp://a:1", ""), Error);
  CHECK(own_addresses().back() == "127.0.0.1");
}

TEST_CASE("noise ends connections, never the server") {
  const Folder folder;
  RecordServer server({folder.path, "{}", 2});
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    FrameSocket socket;
    REQUIRE(socket.connect(endpoint_of(server), soon()) == "");
    std::string bytes;
    if (i % 2 == 0) {
      FrameHeader hello;
      hello.rank = 1;
      bytes = frame(hello, fmt::format("{} {} append", server.token(), i % 8));
    }
    for (unsigned n = random() % 4; n > 0; --n) {
      FrameHeader header;
      header.kind = static_cast<FrameKind>(random() % 20);
      header.rank = static_cast<int>(random() % 5) - 1;
      header.sequence = random() % 5;
      std::string payload(random() % 300, 'x');
      for (char& c : payload) c = static_cast<char>(random());
      bytes += frame(header, payload);
    }
    bytes.resize(bytes.size() - std::min<std::size_t>(bytes.size(), random() % 8));
    static_cast<void>(socket.send(bytes, soon()));
  }
  {
    RecordLink link(endpoint_of(server), 0, "refuse");
    link.write("well");
  }
  server.finish(kGrace);
  CHECK(folder.lines(0) == std::vector<std::string>{"well"});
}
