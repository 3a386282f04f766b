// Our own all-reduce among threads, over a network whose sends end only when they are received.
#include "train/exchange/ring_halves.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "tests/train/same_bits.hpp"
#include "tests/train/thread_network.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

struct Outcome {
  std::vector<std::vector<float>> values;  ///< of each rank
  std::vector<std::string> problems;
  std::uint64_t sent = 0;  ///< by the first rank
};

/// All-reduces two pieces, whole or in halves with the second one in between.
Outcome all_reduced(std::vector<std::vector<float>> values, std::size_t first, Packing packing,
                    bool halves) {
  ExchangePlan plan;
  plan.packing = packing;
  plan.counts = {first, values[0].size() - first};
  plan.pieces = {{0, first, 0, 1}, {first, values[0].size() - first, 1, 2}};
  const int ranks = static_cast<int>(values.size());
  Outcome outcome{std::move(values), std::vector<std::string>(static_cast<std::size_t>(ranks)), 0};
  Network network;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        ThreadCommunicator comm(network, rank, ranks);
        RingHalves ring(comm, plan, outcome.values[at].data());
        for (const std::size_t piece : {0U, 1U})
          halves ? ring.reduce_scatter(piece) : ring.all_reduce(piece);
        for (const std::size_t piece : {1U, 0U})
          if (halves) ring.all_gather(piece);
        if (comm.open() > 0) outcome.problems[at] = "calls are still open";
        if (comm.sent != ring.sent_bytes()) outcome.problems[at] = "sent bytes are miscounted";
        if (rank == 0) outcome.sent = comm.sent;
      } catch (const std::exception& error) {
        outcome.problems[at] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcome;
}

constexpr std::size_t kRest = 5;

std::vector<std::vector<float>> random_values(int ranks, std::size_t count) {
  std::mt19937 random(11);
  std::normal_distribution<float> spread(0, 1e-3F);
  std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
  for (auto& of_rank : values)
    for (std::size_t i = 0; i < count; ++i) of_rank.push_back(spread(random));
  return values;
}

}  // namespace

TEST_CASE("our own all-reduce sums on every rank, packed or not", "[dear][packing]") {
  const int ranks = GENERATE(1, 2, 3, 4, 5);
  const bool halves = GENERATE(false, true);
  // Parts of no value, of one frame and of several, on some ranks one frame more than on others.
  for (const std::size_t first : {0U, 1U, 2U, 7U, 32768U, 32769U, 98305U, 131073U, 163841U}) {
    const auto values = random_values(ranks, first + kRest);
    const Outcome plain = all_reduced(values, first, Packing::none, halves);
    const Outcome packed = all_reduced(values, first, Packing::exponents, halves);
    INFO(ranks << " ranks, " << first << " values, in halves: " << halves);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      CHECK(plain.problems[rank].empty());
      CHECK(packed.problems[rank].empty());
      CHECK(same_bits(plain.values[rank], plain.values[0]));
      CHECK(same_bits(packed.values[rank], plain.values[0]));
    }
    if (ranks > 1 && first > 30000) CHECK(packed.sent < plain.sent * 87 / 100);
    double worst = 0;
    for (std::size_t i = 0; i < first + kRest; ++i) {
      double sum = 0;
      for (const auto& of_rank : values) sum += of_rank[i];
      worst = std::max(worst, std::abs(sum - packed.values[0][i]));
    }
    CHECK(worst < 1e-8);
  }
}

TEST_CASE("two ranks that swap pieces agree on what is no number", "[packing]") {
  std::vector<std::vector<float>> values(2, std::vector<float>(64));
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      const std::uint32_t word = 0x7fc00000U + 100 * rank + i;
      std::memcpy(&values[rank][i], &word, sizeof word);
    }
  }
  const Outcome outcome = all_reduced(values, 60, Packing::exponents, false);
  CHECK(same_bits(outcome.values[0], outcome.values[1]));
}
