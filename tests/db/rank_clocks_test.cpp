#include "db/rank_clocks.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;
using Catch::Approx;

namespace {

HelloRecord hello_at(int rank, double zero_us) {
  HelloRecord hello;
  hello.rank = rank;
  hello.clock_ns = zero_us * 1e3;
  return hello;
}

CellRecord cell_starting(const std::vector<double>& starts) {
  CellRecord cell;
  cell.measured.start_us = starts;
  cell.measured.total_us.assign(starts.size(), 1.0);
  return cell;
}

}  // namespace

TEST_CASE("on one clock only the ranks' zeros differ") {
  const auto hello0 = hello_at(0, 1000);
  const auto hello1 = hello_at(1, 1040);
  ClockRecord same;
  same.shared = true;
  same.offset_us = 7;  // what the network made of it: there is one clock, so it is no offset
  same.error_us = 9;
  const auto first = cell_starting({50, 150, 250});
  const auto second = cell_starting({12, 112, 217});
  const auto skew = arrival_skew({{0, &first}, {1, &second}},
                                 {rank_clock(&hello0, &same), rank_clock(&hello1, &same)});
  REQUIRE(skew);
  CHECK(skew->median_us == Approx(2));
  CHECK(skew->max_us == Approx(7));
  CHECK(skew->error_us == 0);
}

TEST_CASE("offset and drift bring another host's times to rank 0's clock") {
  const auto hello0 = hello_at(0, 1000);
  const auto hello1 = hello_at(1, 501'000);
  ClockRecord zero;
  zero.shared = true;
  // 500 ms ahead, and 100 us more after a second.
  const ClockRecord ahead{1, false, 501'000, 500'000, 3, 1'501'000, 500'100, 4, 64};
  const auto first = cell_starting({0, 1'000'000});
  const auto second = cell_starting({5, 1'000'105});
  const auto skew = arrival_skew({{0, &first}, {1, &second}},
                                 {rank_clock(&hello0, &zero), rank_clock(&hello1, &ahead)});
  REQUIRE(skew);
  CHECK(skew->median_us == Approx(5).margin(0.1));
  CHECK(skew->max_us == Approx(5).margin(0.1));
  CHECK(skew->error_us == 4);
}

TEST_CASE("without every rank's clock there is no skew") {
  const auto hello = hello_at(0, 0);
  ClockRecord clock;
  clock.shared = true;
  const auto cell = cell_starting({1});
  CHECK_FALSE(rank_clock(&hello, nullptr));
  CHECK_FALSE(arrival_skew({{0, &cell}, {1, &cell}}, {rank_clock(&hello, &clock), std::nullopt}));
  CHECK_FALSE(arrival_skew({{0, &cell}}, {rank_clock(&hello, &clock)}));
}
