#include "workers/measure/clock_sync.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/workers/world.hpp"

using namespace dynamiccl;
using dynamiccl::testing::world;

TEST_CASE("ranks of one kernel share their clock, and the ping-pong agrees") {
  auto& comm = world();
  ClockSync sync(comm);
  const auto record = sync.conclude();
  CHECK(record.rank == comm.rank());
  CHECK(record.shared);
  CHECK(std::fabs(record.offset_us) <= record.error_us);
  CHECK(record.end_at_us >= record.at_us);
  if (comm.rank() > 0) {
    CHECK(record.rounds > 0);
    CHECK(record.error_us > 0);
  }
}

TEST_CASE("a clock that is ahead and runs fast is found so within the error") {
  auto& comm = world();
  const double zero_us = now_us();
  const double ahead_us = 5e6 * comm.rank();
  const double fast = comm.rank() > 0 ? 1e-3 : 0;
  const auto clock = [&] { return now_us() + ahead_us + fast * (now_us() - zero_us); };
  ClockSync sync(comm, clock);
  const double until = now_us() + 20e3;
  while (now_us() < until) {
  }
  const auto record = sync.conclude();
  if (comm.rank() == 0) return;
  CHECK_FALSE(record.shared);
  // The ranks' zeros of the fast clock differ by what starting them takes.
  const auto expected = [&](double at_us) {
    return ahead_us + fast * (at_us - ahead_us - zero_us);
  };
  CHECK(std::fabs(record.offset_us - expected(record.at_us)) <= record.error_us + 1);
  CHECK(std::fabs(record.end_offset_us - expected(record.end_at_us)) <= record.end_error_us + 1);
}
