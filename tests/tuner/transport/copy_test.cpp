// Copy threads that have no core, and what the transport says of itself then.
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/tuner/transport/in_child.hpp"
#include "tuner/transport/copy_pool.hpp"
#include "tuner/transport/peer_watch.hpp"
#include "tuner/transport/ring_connection.hpp"

using Catch::Matchers::ContainsSubstring;
using dynamiccl::FileDescriptor;
using dynamiccl::testing::in_child;
using namespace dynamiccl::transport;
namespace nccl_net = dynamiccl::nccl_net;

namespace {

/// Holds every copy thread that looks at it, as a machine without a free core does.
class Gate final : public Movable {
 public:
  Gate() {
    CopyPool::instance().start(2);
    if (!CopyPool::instance().add(*this)) throw std::runtime_error("no place for a gate");
    CopyPool::instance().begin_large();
    while (held_.load() < CopyPool::instance().threads()) {
      CopyPool::instance().wake();
      sched_yield();
    }
  }
  ~Gate() {
    open_.store(true);
    CopyPool::instance().remove(*this);
    CopyPool::instance().end_large();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  bool step(std::size_t /*most*/) noexcept override {
    held_.fetch_add(1);
    while (!open_.load()) sched_yield();
    return false;
  }
  [[nodiscard]] std::string state() override { return "a gate\n"; }

 private:
  std::atomic<unsigned> held_{0};
  std::atomic<bool> open_{false};
};

constexpr std::size_t kCell = 65536;
constexpr std::size_t kInline = 4096;

/// Both ends of a connection in this process.
struct Pair {
  std::unique_ptr<RingConnection> sender;
  std::unique_ptr<RingConnection> receiver;

  Pair() {
    int ends[2] = {};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
      throw std::runtime_error("no sockets");
    track_socket(ends[0]);
    track_socket(ends[1]);
    std::string problem;
    auto ring = Ring::make(4, kCell, problem);
    if (ring == nullptr) throw std::runtime_error(problem);
    auto mapped = Ring::map(FileDescriptor(dup(ring->file())), 4, kCell, problem);
    if (mapped == nullptr) throw std::runtime_error(problem);
    sender = RingConnection::make(true, FileDescriptor(ends[0]), std::move(ring), kInline, problem);
    receiver =
        RingConnection::make(false, FileDescriptor(ends[1]), std::move(mapped), kInline, problem);
    if (sender == nullptr || receiver == nullptr) throw std::runtime_error(problem);
  }
};

/// A message of ten cells goes from one end to the other by this thread's looks alone.
std::string send_beside_gate() {
  CopyPool::instance().start(2);
  Pair pair;
  const Gate gate;
  Memory memory;
  std::vector<std::byte> sent(9 * kCell + 77);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 >> 3);
  std::vector<std::byte> room(sent.size());
  Request* sending = nullptr;
  Request* receiving = nullptr;
  if (pair.receiver->irecv(room.data(), room.size(), memory, receiving) != nccl_net::kSuccess ||
      pair.sender->isend(sent.data(), sent.size(), memory, sending) != nccl_net::kSuccess)
    return "refused";
  bool out = false;
  bool in = false;
  for (int looks = 0; looks < 10'000 && !(out && in); ++looks) {
    if (!out && pair.sender->test(*sending, out) != nccl_net::kSuccess) return "sender fails";
    if (!in && pair.receiver->test(*receiving, in) != nccl_net::kSuccess) return "receiver fails";
  }
  if (!out || !in) return "waits\n" + CopyPool::instance().state();
  return room == sent ? "arrived" : "wrong bytes";
}

/// What is said of a receive that nothing comes for.
std::string state_of_waiting() {
  CopyPool::instance().start(2);
  Pair pair;
  Memory memory;
  std::vector<std::byte> room(100'000);
  Request* receiving = nullptr;
  if (pair.receiver->irecv(room.data(), room.size(), memory, receiving) != nccl_net::kSuccess)
    return "refused";
  return CopyPool::instance().state();
}

}  // namespace

// In processes of their own: copy threads stay, and other tests fork.
TEST_CASE("Large messages arrive while no copy thread has a core") {
  CHECK(in_child(send_beside_gate) == "arrived");
}

TEST_CASE("The transport says which messages do not move") {
  const std::string said = in_child(state_of_waiting);
  CHECK_THAT(said, ContainsSubstring("2 copy threads"));
  CHECK_THAT(said, ContainsSubstring("receives: 1 messages asked for, 1 not over, 0 taken in "
                                     "whole, of the next 0 of 100000 bytes; cell 0 has turn 0"));
  CHECK_THAT(said, !ContainsSubstring("sends"));
}
