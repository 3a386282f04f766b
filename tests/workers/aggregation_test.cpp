// A launch's aggregator as it is started, ranks as threads with sockets of their own, and between
// them a relay that loses datagrams.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "workers/aggregation/aggregation_link.hpp"
#include "workers/aggregation/aggregation_pool.hpp"

using namespace dynamiccl;

namespace {

struct Program {
  pid_t pid = -1;
  int held = -1;
  int port = 0;

  explicit Program(int ranks) {
    int in[2];
    int out[2];
    REQUIRE(pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in[0], 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    std::string program = DYNAMICCL_AGGREGATOR;
    std::string count = std::to_string(ranks);
    std::string key = "abcd";
    char* argv[] = {program.data(), count.data(), key.data(), nullptr};
    REQUIRE(posix_spawn(&pid, program.c_str(), &files, nullptr, argv, environ) == 0);
    close(in[0]);
    close(out[1]);
    held = in[1];
    FILE* said = fdopen(out[0], "r");
    REQUIRE(std::fscanf(said, "%d", &port) == 1);
    std::fclose(said);
  }
  ~Program() {
    if (held >= 0) close(held);
    if (pid > 0) waitpid(pid, nullptr, 0);
  }
};

sockaddr_in local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

/// One rank's way to the aggregator, which loses `loss` of the datagrams each way, repeats as many,
/// and keeps as many until the next one has passed.
class Relay {
 public:
  Relay(int port, double loss, unsigned seed) : loss_(loss), random_(seed), to_(local(port)) {
    for (int& end : ends_) {
      end = socket(AF_INET, SOCK_DGRAM, 0);
      sockaddr_in any = local(0);
      REQUIRE(bind(end, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
    }
    socklen_t length = sizeof from_;
    getsockname(ends_[0], reinterpret_cast<sockaddr*>(&from_), &length);
    port_ = ntohs(from_.sin_port);
    thread_ = std::thread([this] { pass(); });
  }
  ~Relay() {
    end_ = true;
    thread_.join();
    for (const int end : ends_) close(end);
  }
  [[nodiscard]] int port() const { return port_; }

 private:
  void pass() {
    pollfd wakers[2] = {{ends_[0], POLLIN, 0}, {ends_[1], POLLIN, 0}};
    while (!end_) {
      if (poll(wakers, 2, 20) <= 0) continue;
      for (int side = 0; side < 2; ++side) {
        std::vector<char> bytes(2000);
        sockaddr_in who{};
        socklen_t length = sizeof who;
        const ssize_t got = recvfrom(ends_[side], bytes.data(), bytes.size(), MSG_DONTWAIT,
                                     reinterpret_cast<sockaddr*>(&who), &length);
        if (got < 0) continue;
        bytes.resize(static_cast<std::size_t>(got));
        if (side == 0) from_ = who;
        if (chance()) continue;
        if (chance()) {
          late_[side] = bytes;
          continue;
        }
        send(side, bytes);
        if (chance()) send(side, bytes);
        if (!late_[side].empty()) send(side, std::exchange(late_[side], {}));
      }
    }
  }
  bool chance() { return std::uniform_real_distribution<>()(random_) < loss_; }
  void send(int side, const std::vector<char>& bytes) {
    const sockaddr_in& to = side == 0 ? to_ : from_;
    sendto(ends_[1 - side], bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
           sizeof to);
  }

  double loss_;
  std::mt19937 random_;
  sockaddr_in to_;
  sockaddr_in from_{};
  int ends_[2] = {-1, -1};
  int port_ = 0;
  std::vector<char> late_[2];
  std::atomic<bool> end_ = false;
  std::thread thread_;
};

/// `what` on a thread for each rank, with its link; what it threw is told by rank.
std::vector<std::string> on_ranks(int ranks, const std::function<std::string(int)>& place,
                                  const std::function<void(int, AggregationLink&)>& what) {
  std::vector<std::string> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        AggregationLink link(place(rank), rank, ranks);
        what(rank, link);
      } catch (const Error& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return thrown;
}

std::string at(int port) { return fmt::format("192.0.2.1,127.0.0.1:{}/abcd", port); }

std::vector<float> numbers(int rank, std::size_t count, float greatest) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::uniform_real_distribution<float> uniform(-greatest, greatest);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

/// The same sum in fixed point, without a network.
std::vector<float> oracle(const std::vector<std::vector<float>>& inputs) {
  float greatest = 0;
  for (const auto& input : inputs)
    for (const float value : input) greatest = std::max(greatest, std::abs(value));
  const double scale =
      std::ldexp(1, fixed_point_shift(std::ilogb(greatest) + 1, static_cast<int>(inputs.size())));
  std::vector<float> sums;
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    long long sum = 0;
    for (const auto& input : inputs) sum += std::llrint(input[i] * scale);
    sums.push_back(static_cast<float>(static_cast<double>(sum) / scale));
  }
  return sums;
}

}  // namespace

TEST_CASE("an aggregator's sums are the fixed-point oracle's, whatever the network loses",
          "[C-49][C-50]") {
  constexpr int kRanks = 3;
  for (const double loss : {0.0, 0.001, 0.01, 0.05}) {
    Program program(kRanks);
    std::vector<std::unique_ptr<Relay>> relays;
    for (unsigned rank = 0; rank < kRanks; ++rank)
      relays.push_back(std::make_unique<Relay>(program.port, loss, rank + 7));
    std::atomic<std::uint64_t> again = 0;
    std::atomic<int> right = 0;
    const auto thrown = on_ranks(
        kRanks, [&](int rank) { return at(relays[static_cast<std::size_t>(rank)]->port()); },
        [&](int rank, AggregationLink& link) {
          for (const float greatest : {1.0F, 3e-30F, 2e12F})
            for (const std::size_t count : {1U, 359U, 361U, 100001U}) {
              std::vector<std::vector<float>> inputs;
              for (int r = 0; r < kRanks; ++r) inputs.push_back(numbers(r, count, greatest));
              auto& in = inputs[static_cast<std::size_t>(rank)];
              const auto expected = oracle(inputs);
              std::vector<float> out(count);
              link.allreduce(in.data(), out.data(), count, DataType::float32);
              link.allreduce(in.data(), in.data(), count, DataType::float32);
              right += out == expected && in == expected ? 1 : 0;
            }
          std::vector<std::int32_t> whole(1000, rank == 0 ? INT32_MAX : 1);
          link.allreduce(whole.data(), whole.data(), whole.size(), DataType::int32);
          right += whole == std::vector<std::int32_t>(1000, INT32_MIN + 1) ? 1 : 0;
          std::vector<float> zeros(10, 0), sums(10, 1);
          link.allreduce(zeros.data(), sums.data(), 10, DataType::float32);
          right += sums == zeros ? 1 : 0;
          // Half a unit of fixed point a rank; float32 itself rounds such sums by more.
          right += link.counts().largest_error == 3 * std::exp2(41 - 28 - 1) ? 1 : 0;
          again += link.counts().sent_again;
        });
    INFO("loss " << loss);
    CHECK(thrown == std::vector<std::string>(kRanks));
    CHECK(right == kRanks * 15);
    if (loss >= 0.01) CHECK(again > 0);
  }
}

TEST_CASE("numbers that are not finite end the call on all ranks, not the aggregator") {
  Program program(2);
  const auto thrown = on_ranks(
      2, [&](int) { return at(program.port); },
      [](int rank, AggregationLink& link) {
        std::vector<float> values(1000, 1);
        link.allreduce(values.data(), values.data(), 1000, DataType::float32);
        values[7] = rank == 0 ? 1 : std::nanf("");
        link.allreduce(values.data(), values.data(), 1000, DataType::float32);
      });
  for (const auto& said : thrown) CHECK(said.find("not finite") != std::string::npos);
}

TEST_CASE("a killed aggregator ends its ranks' calls within five seconds, one that never was too") {
  Program program(3);
  std::atomic<int> summed = 0;
  const auto killed_at = [&] {
    while (summed < 3) std::this_thread::yield();
    kill(program.pid, SIGKILL);
    return std::chrono::steady_clock::now();
  };
  std::chrono::steady_clock::time_point killed;
  std::thread killer([&] { killed = killed_at(); });
  const auto thrown = on_ranks(
      3, [&](int) { return at(program.port); },
      [&](int, AggregationLink& link) {
        std::vector<float> values(200000, 1);
        for (;;) {
          link.allreduce(values.data(), values.data(), values.size(), DataType::float32);
          ++summed;
        }
      });
  killer.join();
  CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(5));
  for (const auto& said : thrown) {
    INFO(said);
    CHECK(said.find("has not answered for 2 s") != std::string::npos);
  }
  const auto never = on_ranks(
      1, [](int) { return at(9); }, [](int, AggregationLink&) {});
  CHECK(never[0].find("no aggregator answers") != std::string::npos);
}

TEST_CASE("a rank is waited for longer than an aggregator that says nothing") {
  Program program(2);
  std::atomic<int> right = 0;
  const auto thrown = on_ranks(
      2, [&](int) { return at(program.port); },
      [&](int rank, AggregationLink& link) {
        std::vector<float> values(1000, 1);
        if (rank == 1)
          std::this_thread::sleep_for(AggregationLink::kSilence + std::chrono::milliseconds(500));
        link.allreduce(values.data(), values.data(), values.size(), DataType::float32);
        right += values == std::vector<float>(1000, 2) ? 1 : 0;
      });
  CHECK(thrown == std::vector<std::string>(2));
  CHECK(right == 2);
}

TEST_CASE("a rank with other slots than the aggregator's meets none") {
  Program program(2);
  const int end = socket(AF_INET, SOCK_DGRAM, 0);
  const sockaddr_in to = local(program.port);
  const auto is_answered = [&](std::uint64_t slots) {
    const AggregationHeader hello{0xabcd, slots, 1, AggregationKind::hello, 0};
    sendto(end, &hello, sizeof hello, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    pollfd waker{end, POLLIN, 0};
    return poll(&waker, 1, slots == kAggregationSlots ? 10'000 : 300) > 0;
  };
  CHECK_FALSE(is_answered(2 * kAggregationSlots));
  CHECK_FALSE(is_answered(kAggregationSlots / 2));
  CHECK(is_answered(kAggregationSlots));
  close(end);
}

TEST_CASE("datagrams of strangers, of no sense and of any length change no sum", "[safety]") {
  Program program(2);
  std::atomic<bool> end = false;
  std::thread stranger([&] {
    const int out = socket(AF_INET, SOCK_DGRAM, 0);
    const sockaddr_in to = local(program.port);
    std::mt19937 random(3);
    std::vector<std::uint8_t> bytes(65507);
    while (!end) {
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
      AggregationHeader header{0xabcd, random() % 512, static_cast<std::uint16_t>(random() % 4),
                               static_cast<AggregationKind>(random() % 6),
                               static_cast<std::uint32_t>(random() % 400)};
      // Another job's key, or this one's on what is too long, too short, or of no rank.
      if (random() % 2 == 0) header.key = 0xabce;
      if (header.key == 0xabcd) header.rank = 7;
      std::memcpy(bytes.data(), &header, sizeof header);
      for (const std::size_t length :
           {bytes.size(), std::size_t{1464}, std::size_t{23}, sizeof header + 4 * header.elements})
        sendto(out, bytes.data(), length, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      header.rank = 0;
      header.key = 0xabcd;
      std::memcpy(bytes.data(), &header, sizeof header);
      sendto(out, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    close(out);
  });
  std::atomic<int> right = 0;
  const auto thrown = on_ranks(
      2, [&](int) { return at(program.port); },
      [&](int, AggregationLink& link) {
        for (int i = 0; i < 50; ++i) {
          std::vector<std::int32_t> values(5000, i);
          link.allreduce(values.data(), values.data(), values.size(), DataType::int32);
          right += values == std::vector<std::int32_t>(5000, 2 * i) ? 1 : 0;
        }
      });
  end = true;
  stranger.join();
  CHECK(thrown == std::vector<std::string>(2));
  CHECK(right == 100);
}

TEST_CASE("who knows the key takes no rank's place once its first chunk is there", "[safety]") {
  Program program(2);
  std::atomic<int> met = 0;
  std::atomic<bool> end = false;
  std::thread stranger([&] {
    const int out = socket(AF_INET, SOCK_DGRAM, 0);
    const sockaddr_in to = local(program.port);
    while (met < 2) std::this_thread::yield();
    // Each chunk that is to come, with numbers of its own, and that it be answered instead.
    for (std::uint64_t sequence = 1; !end; sequence = sequence % 400 + 1)
      for (const auto kind : {AggregationKind::sum, AggregationKind::hello})
        for (std::uint16_t rank = 0; rank < 2; ++rank) {
          AggregationPacket packet{{0xabcd, sequence, rank, kind, kChunkElements}, {}};
          packet.values.fill(1000);
          if (kind == AggregationKind::hello) packet.header.sequence = kAggregationSlots;
          sendto(out, &packet, packet_bytes(packet.header), 0,
                 reinterpret_cast<const sockaddr*>(&to), sizeof to);
        }
    close(out);
  });
  std::atomic<int> right = 0;
  const auto thrown = on_ranks(
      2, [&](int) { return at(program.port); },
      [&](int rank, AggregationLink& link) {
        std::int32_t first = 1;
        link.allreduce(&first, &first, 1, DataType::int32);
        ++met;
        for (int i = 0; i < 100; ++i) {
          // One after the other, so that the stranger's chunk is there before the rank's.
          if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          std::vector<std::int32_t> values(4 * kChunkElements, i);
          link.allreduce(values.data(), values.data(), values.size(), DataType::int32);
          right += values == std::vector<std::int32_t>(values.size(), 2 * i) ? 1 : 0;
        }
      });
  end = true;
  stranger.join();
  CHECK(thrown == std::vector<std::string>(2));
  CHECK(right == 200);
}

TEST_CASE("an aggregator ends when whoever started it is gone") {
  Program program(2);
  close(std::exchange(program.held, -1));
  int status = -1;
  CHECK(waitpid(std::exchange(program.pid, -1), &status, 0) > 0);
  CHECK(WIFEXITED(status));
}

TEST_CASE("a slot adds a rank once, keeps its sum for who lost it, and forgets it in time",
          "[C-50]") {
  AggregationPool pool(2);
  const AggregationPacket* sum = nullptr;
  AggregationPacket packet{{1, 5, 0, AggregationKind::sum, 1}, {10}};
  using Then = AggregationPool::Then;
  CHECK(pool.take(packet, sum) == Then::nothing);
  CHECK(pool.take(packet, sum) == Then::tell_waits);
  packet.header.rank = 1;
  packet.values[0] = 4;
  CHECK(pool.take(packet, sum) == Then::tell_all);
  CHECK(sum->values[0] == 14);
  CHECK(pool.take(packet, sum) == Then::tell_one);
  CHECK(sum->values[0] == 14);
  // The same slot in the other version leaves it alone, the next one of this version takes it.
  packet.header.sequence = 5 + kAggregationSlots;
  CHECK(pool.take(packet, sum) == Then::nothing);
  packet.header.sequence = 5;
  CHECK(pool.take(packet, sum) == Then::tell_one);
  packet.header.sequence = 5 + 2 * kAggregationSlots;
  CHECK(pool.take(packet, sum) == Then::nothing);
  packet.header.sequence = 5;
  CHECK(pool.take(packet, sum) == Then::nothing);
  packet.header = {1, 7, 2, AggregationKind::sum, 1};  // no rank of these
  CHECK(pool.take(packet, sum) == Then::nothing);
}
