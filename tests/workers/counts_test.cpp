// MPI's counts are ints. This program's backend is compiled with a limit of 1000 instead of 2^30,
// so that the ways around it run.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <vector>

#include "tests/workers/world.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::world;

namespace {
constexpr std::size_t kMany = 2500;
}

TEST_CASE("sums and broadcasts past the limit are cut into several calls") {
  std::vector<float> in(kMany);
  for (std::size_t i = 0; i < kMany; ++i)
    in[i] = static_cast<float>(i) + static_cast<float>(world().rank());
  std::vector<float> out(kMany, -1);
  world().allreduce(in.data(), out.data(), kMany, DataType::float32);
  std::vector<float> reduced(kMany, -1);
  world().reduce(in.data(), reduced.data(), kMany, DataType::float32, 1);
  std::vector<float> sent = in;
  world().broadcast(sent.data(), kMany, DataType::float32, 1);
  for (std::size_t i = 0; i < kMany; ++i) {
    CHECK(out[i] == 2 * static_cast<float>(i) + 1);
    CHECK(reduced[i] == (world().rank() == 1 ? 2 * static_cast<float>(i) + 1 : -1));
    CHECK(sent[i] == static_cast<float>(i) + 1);
  }
}

TEST_CASE("messages past the limit travel as one, with any rest") {
  for (const std::size_t bytes : {std::size_t{65536}, std::size_t{200001}}) {
    const std::vector<char> data(bytes, static_cast<char>('a' + world().rank()));
    std::vector<char> received(bytes, '?');
    const int other = 1 - world().rank();
    exchange(world(), data.data(), bytes, other, received.data(), bytes, other, 11);
    CHECK(received == std::vector<char>(bytes, static_cast<char>('a' + other)));
  }
}

TEST_CASE("collectives with one count per rank refuse more than the limit") {
  CallShape shape;
  shape.collective = Collective::allgather;
  shape.count = kMany;
  CHECK_THAT(world().unsupported(shape).value_or(""), ContainsSubstring("2500 elements per rank"));
  shape.count = 1000;
  CHECK_FALSE(world().unsupported(shape).has_value());
}
