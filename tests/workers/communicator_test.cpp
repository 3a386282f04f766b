// The contract that every backend must keep, checked against sums computed by hand; run with 1, 2
// and 4 ranks.
#include "workers/communicator.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <vector>

#include "tests/workers/world.hpp"
#include "workers/clock.hpp"
#include "workers/measure/barrier_check.hpp"

using namespace dynamiccl;
using dynamiccl::testing::world;

namespace {

int ranks() { return world().size(); }
int rank() { return world().rank(); }

/// rank*1000 + index: different on every rank and at every place.
std::vector<std::int32_t> own_values(std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), rank() * 1000);
  return values;
}

std::int32_t sum_at(std::size_t index) {
  return 1000 * ranks() * (ranks() - 1) / 2 + ranks() * static_cast<std::int32_t>(index);
}

CallShape shape_of(Collective collective, std::size_t count) {
  CallShape shape;
  shape.collective = collective;
  shape.datatype = DataType::int32;
  shape.count = count;
  return shape;
}

constexpr std::size_t kCount = 77;

}  // namespace

TEST_CASE("a library names itself and its version") {
  CHECK_FALSE(world().library().empty());
  CHECK(world().library().find('\n') == std::string::npos);
  CHECK(world().library().find(world().library_version()) != std::string::npos);
  CHECK(world().library_version().find('.') != std::string::npos);
}

TEST_CASE("allreduce gives every rank the sum") {
  const auto in = own_values(kCount);
  std::vector<std::int32_t> out(kCount, -1);
  world().choose(shape_of(Collective::allreduce, kCount));
  world().allreduce(in.data(), out.data(), kCount, DataType::int32);
  for (std::size_t i = 0; i < kCount; ++i) CHECK(out[i] == sum_at(i));
  auto both = own_values(kCount);
  world().allreduce(both.data(), both.data(), kCount, DataType::int32);
  CHECK(both == out);
}

TEST_CASE("reduce gives the root alone the sum, whichever rank it is") {
  for (int root = 0; root < ranks(); ++root) {
    const auto in = own_values(kCount);
    std::vector<std::int32_t> out(kCount, -1);
    world().choose(shape_of(Collective::reduce, kCount));
    world().reduce(in.data(), rank() == root ? out.data() : nullptr, kCount, DataType::int32, root);
    for (std::size_t i = 0; i < kCount; ++i) CHECK(out[i] == (rank() == root ? sum_at(i) : -1));
    CHECK(in == own_values(kCount));
  }
}

TEST_CASE("broadcast gives every rank the root's values") {
  for (int root = 0; root < ranks(); ++root) {
    auto data = own_values(kCount);
    world().choose(shape_of(Collective::broadcast, kCount));
    world().broadcast(data.data(), kCount, DataType::int32, root);
    for (std::size_t i = 0; i < kCount; ++i)
      CHECK(data[i] == root * 1000 + static_cast<std::int32_t>(i));
  }
}

TEST_CASE("allgather and gather keep rank order") {
  const auto in = own_values(kCount);
  const std::size_t all = kCount * static_cast<std::size_t>(ranks());
  std::vector<std::int32_t> expected(all);
  for (std::size_t i = 0; i < all; ++i)
    expected[i] = static_cast<std::int32_t>(i / kCount * 1000 + i % kCount);
  std::vector<std::int32_t> out(all, -1);
  world().choose(shape_of(Collective::allgather, kCount));
  world().allgather(in.data(), out.data(), kCount, DataType::int32);
  CHECK(out == expected);
  const int root = ranks() - 1;
  std::vector<std::int32_t> gathered(all, -1);
  world().choose(shape_of(Collective::gather, kCount));
  world().gather(in.data(), gathered.data(), kCount, DataType::int32, root);
  CHECK(gathered == (rank() == root ? expected : std::vector<std::int32_t>(all, -1)));
}

TEST_CASE("alltoall sends each rank its part") {
  const auto count = static_cast<std::size_t>(ranks()) * kCount;
  const auto in = own_values(count);
  std::vector<std::int32_t> out(count, -1);
  world().choose(shape_of(Collective::alltoall, kCount));
  world().alltoall(in.data(), out.data(), kCount, DataType::int32);
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = i / kCount;
    const auto place = static_cast<std::size_t>(rank()) * kCount + i % kCount;
    CHECK(out[i] == static_cast<std::int32_t>(from * 1000 + place));
  }
}

TEST_CASE("alltoallv sends each pair of ranks its own number of elements", "[c-23]") {
  // From i to j go 10 * i + j + 1 elements.
  PairCounts counts;
  int sent = 0;
  int received = 0;
  for (int peer = 0; peer < ranks(); ++peer) {
    counts.send.push_back(10 * rank() + peer + 1);
    counts.send_at.push_back(sent);
    counts.receive.push_back(10 * peer + rank() + 1);
    counts.receive_at.push_back(received);
    sent += counts.send.back();
    received += counts.receive.back();
  }
  const auto in = own_values(static_cast<std::size_t>(sent));
  std::vector<std::int32_t> out(static_cast<std::size_t>(received), -1);
  world().choose(shape_of(Collective::alltoallv, static_cast<std::size_t>(sent)));
  world().alltoallv(in.data(), out.data(), counts, DataType::int32);
  std::size_t next = 0;
  for (int peer = 0; peer < ranks(); ++peer) {
    int before = 0;
    for (int other = 0; other < rank(); ++other) before += 10 * peer + other + 1;
    for (int i = 0; i < 10 * peer + rank() + 1; ++i) CHECK(out[next++] == peer * 1000 + before + i);
  }
}

TEST_CASE("scatter gives each rank its part of the root's values, whichever rank it is") {
  for (int root = 0; root < ranks(); ++root) {
    const auto in = own_values(kCount * static_cast<std::size_t>(ranks()));
    std::vector<std::int32_t> out(kCount, -1);
    world().choose(shape_of(Collective::scatter, kCount));
    world().scatter(rank() == root ? in.data() : nullptr, out.data(), kCount, DataType::int32,
                    root);
    for (std::size_t i = 0; i < kCount; ++i)
      CHECK(out[i] ==
            root * 1000 + static_cast<std::int32_t>(static_cast<std::size_t>(rank()) * kCount + i));
  }
}

TEST_CASE("allgatherv keeps rank order and each rank's own number of elements", "[c-23]") {
  PairCounts counts;
  std::vector<std::int32_t> expected;
  for (int peer = 0; peer < ranks(); ++peer) {
    // The second rank gives nothing.
    const int given = peer == 1 ? 0 : 3 * peer + 2;
    counts.receive_at.push_back(static_cast<int>(expected.size()));
    counts.receive.push_back(given);
    for (int i = 0; i < given; ++i) expected.push_back(peer * 1000 + i);
  }
  const auto own = static_cast<std::size_t>(rank());
  const auto in = own_values(static_cast<std::size_t>(counts.receive[own]));
  std::vector<std::int32_t> out(expected.size(), -1);
  world().choose(shape_of(Collective::allgatherv, expected.size()));
  world().allgatherv(in.data(), out.data(), counts, DataType::int32);
  CHECK(out == expected);
  std::vector<std::int32_t> both(expected.size(), -1);
  auto* place = both.data() + counts.receive_at[own];
  std::copy(in.begin(), in.end(), place);
  world().allgatherv(place, both.data(), counts, DataType::int32);
  CHECK(both == expected);
}

TEST_CASE("nobody leaves the library's barrier before all have come") {
  world().choose(shape_of(Collective::barrier, 0));
  const auto verdict = check_barrier(world());
  CHECK(verdict.checked == static_cast<std::uint64_t>(ranks()));
  INFO(verdict.first_wrong);
  CHECK(verdict.wrong == 0);
}

TEST_CASE("reduce_scatter gives each rank its part of the sum, where the library has it") {
  if (world().algorithms(Collective::reduce_scatter).empty()) return;
  const auto in = own_values(kCount * static_cast<std::size_t>(ranks()));
  std::vector<std::int32_t> out(kCount, -1);
  world().choose(shape_of(Collective::reduce_scatter, kCount));
  world().reduce_scatter(in.data(), out.data(), kCount, DataType::int32);
  for (std::size_t i = 0; i < kCount; ++i)
    CHECK(out[i] == sum_at(static_cast<std::size_t>(rank()) * kCount + i));
}

TEST_CASE("messages of one tag keep their order, whatever their size") {
  if (ranks() < 2) return;
  const int right = (rank() + 1) % ranks();
  const int left = (rank() + ranks() - 1) % ranks();
  const std::vector<std::size_t> sizes{1, 3000000, 8, 70000, 2};
  std::vector<std::vector<unsigned char>> sent;
  std::vector<std::vector<unsigned char>> received;
  std::vector<Request> requests;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sent.emplace_back(sizes[i], static_cast<unsigned char>(10 * rank() + static_cast<int>(i)));
    received.emplace_back(sizes[i], static_cast<unsigned char>(255));
  }
  for (auto& data : received) requests.push_back(world().irecv(data.data(), data.size(), left, 9));
  for (const auto& data : sent)
    requests.push_back(world().isend(data.data(), data.size(), right, 9));
  for (const auto request : requests) world().wait(request);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto expected = static_cast<unsigned char>(10 * left + static_cast<int>(i));
    CHECK(received[i] == std::vector<unsigned char>(sizes[i], expected));
  }
}

TEST_CASE("no rank leaves a barrier before the last one enters") {
  // The ranks of these tests share one host, hence one CLOCK_MONOTONIC.
  for (int late = 0; late < ranks(); ++late) {
    if (rank() == late) {
      const double until_us = now_us() + 3000;
      while (now_us() < until_us) {
      }
    }
    const double entered_us = now_us();
    barrier(world());
    const double left_us = now_us();
    const double last_entry_us = max_over_ranks(world(), {entered_us})[0];
    CHECK(left_us >= last_entry_us);
  }
}

TEST_CASE("maxima and sums over the ranks are known to all") {
  const double mine = rank() + 1.0;
  CHECK(max_over_ranks(world(), {mine, -mine}) == std::vector<double>{double(ranks()), -1.0});
  CHECK(sum_over_ranks(world(), {mine})[0] == ranks() * (ranks() + 1) / 2.0);
}

TEST_CASE("a message is received from whoever sends it") {
  constexpr int kTag = 77;
  if (rank() == 0) {
    std::vector<int> others;
    for (int other = 1; other < ranks(); ++other) others.push_back(other);
    std::vector<int> seen;
    while (!others.empty()) {
      std::int32_t value = -1;
      const int from = world().receive_any(&value, sizeof value, others, kTag, Micros(60e6));
      CHECK(value == 1000 * from);
      seen.push_back(from);
      std::erase(others, from);
    }
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<int>(i) + 1);
  } else {
    const std::int32_t value = 1000 * rank();
    world().wait(world().isend(&value, sizeof value, 0, kTag));
  }
}
