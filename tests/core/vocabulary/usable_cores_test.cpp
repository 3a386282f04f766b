#include "core/vocabulary/usable_cores.hpp"

#include <sched.h>

#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

TEST_CASE("usable cores are those of the affinity, not of the machine", "[core]") {
  cpu_set_t all;
  CPU_ZERO(&all);
  REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
  CHECK(usable_cores() == CPU_COUNT(&all));
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores() == 1);
  REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
}
