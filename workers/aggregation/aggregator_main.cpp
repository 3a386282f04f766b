// dynamiccl-aggregator RANKS KEY: what a switch that sums would do, as a process. Prints the UDP
// port that it serves, and ends when its standard input does: with whoever started it, however that
// ends.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "workers/aggregation/aggregation_pool.hpp"
#include "workers/aggregation/datagrams.hpp"

namespace dynamiccl {
namespace {

class Aggregator {
 public:
  Aggregator(int ranks, std::uint64_t key)
      : key_(key), pool_(ranks), of_rank_(static_cast<std::size_t>(ranks)) {}

  bool open() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t length = sizeof any;
    auto* address = reinterpret_cast<sockaddr*>(&any);
    if (bind(datagrams_.descriptor(), address, length) != 0 ||
        getsockname(datagrams_.descriptor(), address, &length) != 0)
      return false;
    std::printf("%d\n", ntohs(any.sin_port));
    return std::fflush(stdout) == 0;
  }

  void serve() {
    pollfd wakers[2] = {{datagrams_.descriptor(), POLLIN, 0}, {STDIN_FILENO, 0, 0}};
    while (poll(wakers, 2, -1) > 0) {
      if (wakers[1].revents != 0) return;  // a pipe whose writer is gone
      datagrams_.receive(
          [&](const AggregationPacket& packet, const sockaddr_in& from) { take(packet, from); });
      datagrams_.flush();
    }
  }

 private:
  void take(const AggregationPacket& packet, const sockaddr_in& from) {
    const std::size_t rank = packet.header.rank;
    if (packet.header.key != key_ || rank >= of_rank_.size()) return;
    if (packet.header.kind == AggregationKind::hello) {
      meet(packet, from);
      return;
    }
    // A rank has one socket: what its first chunk came from. A hello may go several ways there.
    sockaddr_in& known = of_rank_[rank];
    if (known.sin_port == 0) known = from;
    if (known.sin_port != from.sin_port || known.sin_addr.s_addr != from.sin_addr.s_addr) return;
    const AggregationPacket* sum = &packet;
    const auto then = pool_.take(packet, sum);
    if (then == AggregationPool::Then::tell_all)
      for (const sockaddr_in& to : of_rank_) datagrams_.add(*sum, &to);
    if (then == AggregationPool::Then::tell_waits) {
      waits_.header = packet.header;
      waits_.header.kind = AggregationKind::waits;
      waits_.header.elements = 0;
      sum = &waits_;
    } else if (then != AggregationPool::Then::tell_one) {
      return;
    }
    datagrams_.add(*sum, &known);
    // Asked for twice: the others may be past it, and what comes next takes its slot.
    datagrams_.flush();
  }

  void meet(const AggregationPacket& packet, const sockaddr_in& from) {
    // With other slots than ours it would take some that others still wait for.
    if (packet.header.sequence != kAggregationSlots) return;
    datagrams_.add(packet, &from);
    datagrams_.flush();
  }

  std::uint64_t key_;
  AggregationPool pool_;
  std::vector<sockaddr_in> of_rank_;  ///< port 0: no chunk of it has come
  AggregationPacket waits_{};
  Datagrams datagrams_;
};

}  // namespace
}  // namespace dynamiccl

int main(int argc, char** argv) {
  const int ranks = argc == 3 ? std::atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > 65535) {
    std::fprintf(stderr, "usage: dynamiccl-aggregator RANKS KEY\n");
    return 2;
  }
  dynamiccl::Aggregator aggregator(ranks, std::strtoull(argv[2], nullptr, 16));
  if (!aggregator.open()) {
    std::perror("dynamiccl-aggregator: no UDP port");
    return 1;
  }
  aggregator.serve();
  return 0;
}
