#include "train/observe/compute_load.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <stdexcept>

using namespace dynamiccl;
using Catch::Matchers::WithinAbs;

TEST_CASE("threads that wait for each other go on as far as the slowest in each stretch",
          "[d-47]") {
  // Rounds by stretch and thread; the second thread is half as fast by itself.
  CHECK_THAT(ComputeLoad::together_us({{100, 50}, {100, 50}}, {10, 5}), WithinAbs(20, 1e-9));
  // All are slowed down at once: that loss counts once, not once a thread.
  CHECK_THAT(ComputeLoad::together_us({{90, 45}, {90, 45}}, {10, 5}), WithinAbs(18, 1e-9));
  // One after the other: each time all wait for it.
  CHECK_THAT(ComputeLoad::together_us({{80, 50}, {100, 40}}, {10, 5}), WithinAbs(16, 1e-9));
  CHECK(ComputeLoad::together_us({{0, 50}}, {10, 5}) == 0);
}

TEST_CASE("a load computes in all its threads from begin on", "[d-47]") {
  ComputeLoad load(2);
  load.calibrate(5000);
  int asked = 0;
  bool begun = false;
  const auto run = load.run_while([&] { begun = true; }, [&] { return ++asked < 2000; });
  CHECK(begun);
  CHECK(asked == 2000);
  CHECK(run.wall_us > 0);
  CHECK(run.lost_us >= 0);
  CHECK(run.lost_us <= run.wall_us);
}

TEST_CASE("a load whose messages fail ends with the error, its threads with it", "[d-47]") {
  ComputeLoad load(3);
  CHECK_THROWS_AS(
      load.run_while([] { throw std::runtime_error("link down"); }, [] { return true; }),
      std::runtime_error);
}
