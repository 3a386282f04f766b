// Peers in processes of their own that write what they like: into the shared ring, to the socket;
// peers of another user.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/tuner/transport/in_child.hpp"
#include "tests/tuner/transport/last_words.hpp"
#include "tests/tuner/transport/loaded_net.hpp"
#include "tests/tuner/transport/test_memory.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring.hpp"
#include "tuner/transport/wire.hpp"

using Catch::Matchers::ContainsSubstring;
using dynamiccl::FileDescriptor;
using dynamiccl::testing::can_become;
using dynamiccl::testing::g_said;
using dynamiccl::testing::in_child;
using dynamiccl::testing::keep;
using dynamiccl::testing::LoadedNet;
using dynamiccl::testing::plugin_library;
using dynamiccl::testing::TestFolder;
using dynamiccl::testing::TestMemory;
using namespace dynamiccl::transport;
using Clock = std::chrono::steady_clock;
namespace nccl_net = dynamiccl::nccl_net;

namespace {

constexpr unsigned kCells = 4;
constexpr std::size_t kCellBytes = 4096;
constexpr std::chrono::milliseconds kWriting{120};
constexpr std::chrono::seconds kPatience{10};

/// A handle passes from one process to the other through a pipe.
struct Pipe {
  int ends[2] = {};
  Pipe() { REQUIRE(pipe(ends) == 0); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
};

/// Memory that ends where no page is: a byte beyond it is a signal.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes) {
    const std::size_t pages = (bytes + kPage - 1) / kPage * kPage;
    all_ = pages + 2 * kPage;
    base_ =
        static_cast<std::byte*>(mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + kPage, pages, PROT_READ | PROT_WRITE);
    std::memset(base_ + kPage, kCanary, pages);
    data_ = base_ + kPage + pages - bytes;
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(base_, all_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  /// What lies before the memory in its first page is as it was.
  [[nodiscard]] bool whole() const {
    for (const std::byte* place = base_ + kPage; place < data_; ++place)
      if (*place != std::byte{kCanary}) return false;
    return true;
  }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr unsigned char kCanary = 0x77;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t all_ = 0;
  std::size_t bytes_;
};

void pass_on(const Pipe& handles, const Handle& handle) {
  char text[nccl_net::kHandleBytes] = {};
  std::memcpy(text, &handle, sizeof handle);
  if (write(handles.ends[1], text, sizeof text) != sizeof text) _exit(1);
}
Handle take(const Pipe& handles) {
  Handle handle{};
  char text[nccl_net::kHandleBytes] = {};
  if (read(handles.ends[0], text, sizeof text) != sizeof text) _exit(1);
  std::memcpy(&handle, text, sizeof handle);
  return handle;
}
Packet hello_to(const Handle& handle) {
  Packet hello;
  hello.token = handle.token;
  hello.cells = kCells;
  hello.cell_bytes = kCellBytes;
  return hello;
}
Handle listener_in(const SharedFolder& folder, std::uint64_t name) {
  Handle handle{};
  handle.magic = kWireMagic;
  handle.version = kWireVersion;
  handle.reachable = 1;
  handle.host = folder.identity().host;
  handle.folder = folder.identity().folder;
  handle.name = name;
  return handle;
}

/// Writes words that may be anything, or nearly right, all over the ring for a while.
void write_at_random(Ring& ring, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  const bool nearly = seed % 2 != 0;
  const auto end = Clock::now() + kWriting;
  while (Clock::now() < end) {
    for (int i = 0; i < 200; ++i) {
      const auto number = static_cast<std::uint32_t>(random() % (nearly ? 64 : kMostCells));
      // What the control page holds beyond the ring's own cells is there to be written, too.
      Cell& cell = ring.cell(number);
      Slot& slot = ring.slot(random());
      const std::uint64_t word = random();
      cell.bytes.store(static_cast<std::uint32_t>(nearly ? word % (kCellBytes + 2) : word));
      cell.total.store(nearly ? (word >> 20) % (3 * kCellBytes) : word);
      cell.turn.store(nearly ? number + static_cast<std::uint32_t>(word >> 62)
                             : static_cast<std::uint32_t>(word >> 32));
      slot.offset.store(word);
      slot.capacity.store(~word);
      slot.key.store(static_cast<std::uint32_t>(word));
      slot.posted.store(static_cast<std::uint32_t>(word >> 3));
      slot.sent.store(word >> 7);
      slot.finished.store(static_cast<std::uint32_t>(word >> 5));
    }
  }
}

/// Sizes of the victim's messages, which its peer knows as well.
class Sizes {
 public:
  explicit Sizes(std::uint32_t seed) : random_(seed) {}
  std::size_t next() { return 1 + random_() % (3 * kCellBytes); }

 private:
  std::mt19937 random_;
};

/// Sends as it should, but once in a while changes what it has said when it is there to be read; at
/// last it sends more than there is room for, each piece as it should be.
void send_and_take_back(Ring& ring, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  Sizes sizes(seed);
  std::uint32_t number = 0;
  const auto end = Clock::now() + kWriting;
  for (int message = 0; Clock::now() < end; ++message) {
    const std::size_t excess = message == 40 ? 1 + random() % (4 * kCellBytes) : 0;
    const std::size_t total = sizes.next() + excess;
    for (std::size_t moved = 0; moved < total && Clock::now() < end; ++number) {
      Cell& cell = ring.cell(number);
      while (cell.turn.load() != number && Clock::now() < end) {
      }
      const std::size_t bytes = std::min(total - moved, kCellBytes);
      cell.bytes.store(static_cast<std::uint32_t>(bytes));
      cell.total.store(total);
      cell.turn.store(number + 1);
      // While the receiver may be at it, or has been.
      if (seed % 2 != 0 && random() % 64 == 0) {
        for (auto pauses = random() % 4096; pauses != 0; --pauses)
          static_cast<void>(cell.turn.load());
        cell.total.store(random());
        cell.bytes.store(static_cast<std::uint32_t>(random()));
      }
      moved += bytes;
    }
  }
}

/// The victim's messages, of many sizes, eight under way, until the network says no. @returns
/// "told", or what should not be
std::string exchange(const LoadedNet& net, void* connection, bool sends, std::uint32_t seed) {
  constexpr std::size_t kWindow = 8;
  Sizes random(seed);
  std::vector<std::unique_ptr<Guarded>> rooms(kWindow);
  std::vector<void*> requests(kWindow);
  std::vector<std::size_t> sizes(kWindow);
  void* memory = nullptr;
  Guarded whole(1);
  if (net.reg_mr(connection, whole.data(), 1, nccl_net::kPointerHost, &memory) != 0) return "regMr";
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  int result = 0;
  const auto end = Clock::now() + kWriting + kPatience;
  while (result == 0 && Clock::now() < end) {
    if (begun - ended < kWindow) {
      const std::size_t place = begun % kWindow;
      if (begun == 0 || requests[place] == nullptr) {
        sizes[place] = random.next();
        rooms[place] = std::make_unique<Guarded>(sizes[place]);
      }
      const auto call = sends ? &LoadedNet::isend : &LoadedNet::irecv;
      result =
          (net.*call)(connection, rooms[place]->data(), sizes[place], memory, &requests[place]);
      if (requests[place] != nullptr) ++begun;
    }
    if (result != 0 || ended == begun) continue;
    bool done = false;
    std::size_t bytes = 0;
    const std::size_t place = ended % kWindow;
    result = net.test(requests[place], done, bytes);
    if (!done) continue;
    if (bytes > sizes[place]) return "a message longer than its room";
    if (!rooms[place]->whole()) return "written before the room";
    requests[place] = nullptr;
    ++ended;
  }
  net.dereg_mr(connection, memory);
  if (result == 0) return "never told";
  if (sends ? net.close_send(connection) != 0 : net.close_recv(connection) != 0) return "close";
  for (const auto& room : rooms)
    if (room != nullptr && !room->whole()) return "written before the room";
  return "told";
}

std::string receive_from_hostile(const Pipe& handles, const std::string& folder,
                                 std::uint32_t seed) {
  setenv("DYNAMICCL_SHARED_FOLDER", folder.c_str(), 1);
  setenv("DYNAMICCL_TRANSPORT_THREADS", seed % 2 == 0 ? "2" : "0", 1);
  const LoadedNet net(plugin_library(), 11);
  char handle[nccl_net::kHandleBytes] = {};
  void* listener = nullptr;
  if (net.init(keep) != 0 || net.listen(handle, &listener) != 0) return "listen " + g_said;
  if (write(handles.ends[1], handle, sizeof handle) != sizeof handle) return "no pipe";
  void* receiver = nullptr;
  for (const auto end = Clock::now() + kPatience; receiver == nullptr && Clock::now() < end;)
    if (net.accept(listener, &receiver) != 0) return "accept " + g_said;
  if (receiver == nullptr) return "nobody came";
  const std::string found = exchange(net, receiver, false, seed);
  net.close_listen(listener);
  return found;
}

/// Comes as a sender should, then writes at random, then ends without a word.
void hostile_sender(const Pipe& handles, const std::string& path, std::uint32_t seed) {
  const Handle theirs = take(handles);
  std::string problem;
  int error = 0;
  const auto folder = SharedFolder::open(path, problem);
  const FileDescriptor socket = folder->connect(theirs.name, error);
  const auto ring = Ring::make(kCells, kCellBytes, problem);
  const Packet hello = hello_to(theirs);
  if (ring == nullptr || !send_packet(socket.get(), hello, ring->file())) _exit(1);
  if (seed % 3 == 2)
    send_and_take_back(*ring, seed);
  else
    write_at_random(*ring, seed);
  if (seed % 4 == 1) send_packet(socket.get(), hello);  // a second hello breaks the rules
  _exit(0);
}

std::string send_to_hostile(const Pipe& handles, const std::string& folder, std::uint32_t seed) {
  setenv("DYNAMICCL_SHARED_FOLDER", folder.c_str(), 1);
  setenv("DYNAMICCL_TRANSPORT_THREADS", seed % 2 == 0 ? "2" : "0", 1);
  setenv("DYNAMICCL_TRANSPORT_CELLS", "4", 1);
  setenv("DYNAMICCL_TRANSPORT_CELL_KIB", "4", 1);
  const LoadedNet net(plugin_library(), 11);
  char handle[nccl_net::kHandleBytes] = {};
  if (net.init(keep) != 0) return "init " + g_said;
  if (read(handles.ends[0], handle, sizeof handle) != sizeof handle) return "no pipe";
  void* sender = nullptr;
  for (const auto end = Clock::now() + kPatience; sender == nullptr && Clock::now() < end;)
    if (net.connect(handle, &sender) != 0) return "connect " + g_said;
  return sender == nullptr ? "no connection" : exchange(net, sender, true, seed);
}

/// Listens as a receiver should, takes the ring, writes at random, then ends.
void hostile_receiver(const Pipe& handles, const std::string& path, std::uint32_t seed) {
  std::string problem;
  const auto folder = SharedFolder::open(path, problem);
  const Handle mine = listener_in(*folder, seed + 1);
  const FileDescriptor listener = folder->listen(mine.name, problem);
  if (!listener.valid()) _exit(1);
  pass_on(handles, mine);
  FileDescriptor socket;
  FileDescriptor file;
  Packet hello;
  for (const auto end = Clock::now() + kPatience; Clock::now() < end && !file.valid();) {
    if (!socket.valid()) socket = FileDescriptor(accept4(listener.get(), nullptr, nullptr, 0));
    if (socket.valid()) receive_packet(socket.get(), hello, file);
  }
  const auto ring = Ring::map(std::move(file), hello.cells, hello.cell_bytes, problem);
  if (ring == nullptr) _exit(1);
  write_at_random(*ring, seed);
  folder->remove(mine.name);
  _exit(0);
}

/// Where this process has the ring of its only connection.
std::byte* own_ring() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("dynamiccl-ring") != std::string::npos)
      return reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16));
  return nullptr;
}

void as_device_rank(const std::string& folder) {
  setenv("DYNAMICCL_SHARED_FOLDER", folder.c_str(), 1);
  setenv("DYNAMICCL_TRANSPORT_DEVICE", "1", 1);
  setenv("NCCL_NET_GDR_LEVEL", "SYS", 1);
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
}

/// A receiver of the network's own that lends memory of its GPU, then asks for messages at random.
void hostile_lender(const Pipe& handles, const std::string& path, std::uint32_t seed) {
  as_device_rank(path);
  const LoadedNet net(plugin_library(), 11);
  char handle[nccl_net::kHandleBytes] = {};
  void* listener = nullptr;
  if (net.init(keep) != 0 || net.listen(handle, &listener) != 0) _exit(1);
  if (write(handles.ends[1], handle, sizeof handle) != sizeof handle) _exit(1);
  void* receiver = nullptr;
  while (receiver == nullptr)
    if (net.accept(listener, &receiver) != 0) _exit(2);
  const TestMemory lent(8 * kCellBytes, true);
  void* memory = nullptr;
  if (net.reg_mr(receiver, lent.data(), 8 * kCellBytes, nccl_net::kPointerCuda, &memory) != 0)
    _exit(3);
  std::byte* ring = own_ring();
  if (ring == nullptr) _exit(4);
  auto* slots = reinterpret_cast<Slot*>(ring + kMostCells * sizeof(Cell));
  std::mt19937_64 random(seed);
  const bool nearly = seed % 2 != 0;
  const auto end = Clock::now() + kWriting;
  for (std::uint32_t number = 0; Clock::now() < end; ++number) {
    Slot& slot = slots[number % kSlots];
    slot.offset.store(nearly ? random() % (5 * kCellBytes) : random());
    slot.capacity.store(nearly ? 3 * kCellBytes : random());
    slot.key.store(nearly ? 1 : static_cast<std::uint32_t>(random()));
    slot.posted.store(nearly ? number + 1 : static_cast<std::uint32_t>(random() % 100));
    // The sender's own words: it may never see that it has finished.
    for (unsigned i = 0; seed % 3 == 0 && i < kSlots; ++i)
      slots[i].finished.store(static_cast<std::uint32_t>(random()));
    if (nearly && number % 8 == 7) usleep(50);
  }
  _exit(0);
}

std::string send_to_lender(const Pipe& handles, const std::string& folder, std::uint32_t seed) {
  as_device_rank(folder);
  return send_to_hostile(handles, folder, seed);
}

/// What a victim beside a hostile process found.
template <typename Victim, typename Hostile>
std::string beside(Victim&& victim, Hostile&& hostile) {
  const TestFolder folder;
  const Pipe handles;
  const pid_t other = fork();
  if (other == 0) {
    // It would wait for ever for the word of a victim that failed before it had one.
    alarm(120);
    hostile(handles, folder.path());
  }
  const std::string found = in_child([&] { return victim(handles, folder.path()); });
  int status = 0;
  waitpid(other, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? found : found + ", the other fell over";
}

constexpr uid_t kOtherUser = 12345;

}  // namespace

TEST_CASE("Random words in the ring end a receiver with an error and write nowhere else") {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    CHECK(beside(
              [&](const Pipe& p, const std::string& f) { return receive_from_hostile(p, f, seed); },
              [&](const Pipe& p, const std::string& f) { hostile_sender(p, f, seed); }) == "told");
  }
}

TEST_CASE("Random words in the ring end a sender with an error and write nowhere else") {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    CHECK(beside([&](const Pipe& p, const std::string& f) { return send_to_hostile(p, f, seed); },
                 [&](const Pipe& p, const std::string& f) { hostile_receiver(p, f, seed); }) ==
          "told");
  }
}

TEST_CASE("Random words of a peer that lends its GPU's memory end a sender with an error") {
  const char* path = std::getenv("LD_LIBRARY_PATH");
  if (path == nullptr || std::strstr(path, "fake_cuda") == nullptr)
    SKIP("needs the stand-in for CUDA's driver in LD_LIBRARY_PATH, as ctest sets it");
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    CHECK(beside([&](const Pipe& p, const std::string& f) { return send_to_lender(p, f, seed); },
                 [&](const Pipe& p, const std::string& f) { hostile_lender(p, f, seed); }) ==
          "told");
  }
}

TEST_CASE("A peer of another user is dropped though it knows the token and may reach the socket") {
  if (!can_become(kOtherUser)) SKIP("a process of another user needs root");
  const Pipe closed;  // a byte when the peer has seen its end
  REQUIRE(fcntl(closed.ends[0], F_SETFL, O_NONBLOCK) == 0);
  const std::string found = beside(
      [&](const Pipe& handles, const std::string& folder) -> std::string {
        // Both users may use such a folder, as /dev/shm; the socket file is opened to all by hand.
        if (chmod(folder.c_str(), 01777) != 0) return "chmod";
        setenv("DYNAMICCL_SHARED_FOLDER", folder.c_str(), 1);
        const LoadedNet net(plugin_library(), 11);
        char handle[nccl_net::kHandleBytes] = {};
        void* listener = nullptr;
        if (net.init(keep) != 0 || net.listen(handle, &listener) != 0) return "listen " + g_said;
        Handle mine{};
        std::memcpy(&mine, handle, sizeof mine);
        char name[64];
        std::snprintf(name, sizeof name, "/dynamiccl-%016llx.sock",
                      static_cast<unsigned long long>(mine.name));
        if (chmod((folder + name).c_str(), 0666) != 0) return "no socket file";
        if (write(handles.ends[1], handle, sizeof handle) != sizeof handle) return "no pipe";
        void* receiver = nullptr;
        bool dropped = false;
        char byte = 0;
        // The listener stays open, so that its end is not what the peer sees.
        for (const auto end = Clock::now() + std::chrono::seconds(60);
             Clock::now() < end && !dropped; dropped = read(closed.ends[0], &byte, 1) == 1)
          if (net.accept(listener, &receiver) != 0 || receiver != nullptr) return "let in";
        net.close_listen(listener);
        return dropped ? "dropped" : "still there";
      },
      [&](const Pipe& handles, const std::string& path) {
        const Handle theirs = take(handles);
        if (setresuid(kOtherUser, kOtherUser, kOtherUser) != 0) _exit(2);
        std::string problem;
        int error = 0;
        const auto folder = SharedFolder::open(path, problem);
        if (folder == nullptr) _exit(3);
        const FileDescriptor socket = folder->connect(theirs.name, error);
        const auto ring = Ring::make(kCells, kCellBytes, problem);
        if (ring == nullptr || !send_packet(socket.get(), hello_to(theirs), ring->file())) _exit(4);
        // Dropped: the listener's rank closes it.
        char byte = 0;
        for (int i = 0; i < 50'000; ++i) {
          const ssize_t size = recv(socket.get(), &byte, 1, MSG_DONTWAIT);
          if (size == 0 || (size < 0 && errno != EAGAIN))
            _exit(write(closed.ends[1], &byte, 1) == 1 ? 0 : 6);
          usleep(1000);
        }
        _exit(5);
      });
  CHECK(found == "dropped");
}

TEST_CASE("A listener of another user is refused before anything is sent to it") {
  if (!can_become(kOtherUser)) SKIP("a process of another user needs root");
  const std::string found = beside(
      [](const Pipe& handles, const std::string& folder) -> std::string {
        setenv("DYNAMICCL_SHARED_FOLDER", folder.c_str(), 1);
        char handle[nccl_net::kHandleBytes] = {};
        if (read(handles.ends[0], handle, sizeof handle) != sizeof handle) return "no pipe";
        const LoadedNet net(plugin_library(), 11);
        if (net.init(keep) != 0) return "init";
        void* sender = nullptr;
        return net.connect(handle, &sender) == 0 ? "connects" : g_said;
      },
      [](const Pipe& handles, const std::string& path) {
        if (chmod(path.c_str(), 01777) != 0 || setresuid(kOtherUser, kOtherUser, kOtherUser) != 0)
          _exit(2);
        std::string problem;
        const auto folder = SharedFolder::open(path, problem);
        if (folder == nullptr) _exit(3);
        const Handle mine = listener_in(*folder, 99);
        const FileDescriptor listener = folder->listen(mine.name, problem);
        if (!listener.valid()) _exit(4);
        pass_on(handles, mine);
        FileDescriptor socket;
        for (int i = 0; i < 3000 && !socket.valid(); ++i) {
          usleep(1000);
          socket = FileDescriptor(accept4(listener.get(), nullptr, nullptr, 0));
        }
        char byte = 0;
        _exit(recv(socket.get(), &byte, 1, 0) == 0 ? 0 : 5);
      });
  CHECK_THAT(found, ContainsSubstring("runs as user 12345"));
  CHECK_THAT(found, !ContainsSubstring("fell over"));
}

TEST_CASE("A forked process has neither the rank's rings nor its sockets") {
  const TestFolder folder;
  const auto has = [] {
    int sockets = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
      sockets += to.rfind("socket:", 0) == 0 || to.find("eventpoll") != std::string::npos ? 1 : 0;
    }
    return std::to_string(sockets) + " sockets, " + (own_ring() != nullptr ? "a ring" : "no ring");
  };
  const std::string found = in_child([&]() -> std::string {
    const std::string before = has();
    setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
    const LoadedNet net(plugin_library(), 11);
    char handle[nccl_net::kHandleBytes] = {};
    void* listener = nullptr;
    void* sender = nullptr;
    void* receiver = nullptr;
    if (net.init(keep) != 0 || net.listen(handle, &listener) != 0) return "listen " + g_said;
    if (net.connect(handle, &sender) != 0 || sender == nullptr) return "connect " + g_said;
    while (receiver == nullptr)
      if (net.accept(listener, &receiver) != 0) return "accept " + g_said;
    return (has() == before ? "nothing to lose; " : "") + in_child(has) +
           (in_child(has) == before ? "" : ", but " + before + " before");
  });
  // Whatever sockets this test was started with stay.
  CHECK_THAT(found, ContainsSubstring("no ring"));
  CHECK_THAT(found, !ContainsSubstring("nothing to lose") && !ContainsSubstring("but"));
}

TEST_CASE("A process that was forked from one that uses the network is told so") {
  const TestFolder folder;
  const std::string found = in_child([&]() -> std::string {
    setenv("DYNAMICCL_SHARED_FOLDER", folder.path().c_str(), 1);
    const LoadedNet net(plugin_library(), 11);
    char handle[nccl_net::kHandleBytes] = {};
    void* listener = nullptr;
    if (net.init(keep) != 0 || net.listen(handle, &listener) != 0) return "listen " + g_said;
    const std::string child = in_child([&]() -> std::string {
      void* other = nullptr;
      if (net.listen(handle, &other) == 0) return "listens";
      const std::string said = g_said;
      g_said.clear();
      if (net.connect(handle, &other) == 0) return "connects";
      net.close_listen(listener);
      return said + g_said;
    });
    // What the child gives up stays the rank's.
    void* sender = nullptr;
    return net.connect(handle, &sender) == 0 && sender != nullptr ? child : "lost: " + g_said;
  });
  CHECK_THAT(found, !ContainsSubstring("lost"));
  CHECK_THAT(found, ContainsSubstring("was forked from one that uses the network"));
  CHECK_THAT(found, ContainsSubstring("spawn"));
}
