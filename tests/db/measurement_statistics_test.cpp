#include "db/measurement_statistics.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

CellRecord timed(std::vector<double> totals) {
  CellRecord record;
  record.barrier = "dissemination";
  record.measured.total_us = std::move(totals);
  return record;
}

std::vector<RankCell> ranks(const std::vector<CellRecord>& records) {
  std::vector<RankCell> cells;
  for (std::size_t i = 0; i < records.size(); ++i) {
    cells.push_back({static_cast<int>(i), &records[i]});
  }
  return cells;
}

}  // namespace

TEST_CASE("an iteration's time is made from the ranks before the median is taken", "[A-20]") {
  // The maxima are 9, 8, 7, 3; the minima 1, 2, 3, 3.
  const std::vector<CellRecord> records{timed({1, 8, 3, 3}), timed({9, 2, 7, 3})};
  CHECK(summarise(ranks(records), RankAggregation::max)->median_us == 7.5);
  CHECK(summarise(ranks(records), RankAggregation::min)->median_us == 2.5);
  CHECK(summarise(ranks(records), RankAggregation::mean)->median_us == 5.0);
  CHECK(summarise(ranks(records), RankAggregation::max)->max_us == 9.0);
}

TEST_CASE("components are those of the rank that gave the iteration its time", "[G-03]") {
  std::vector<CellRecord> records{timed({10, 10, 10}), timed({20, 20, 20})};
  records[0].measured.collective_us = {9, 9, 9};
  records[0].measured.h2d_us = {1, 1, 1};
  records[1].measured.collective_us = {5, 5, 5};
  records[1].measured.send_us = {15, 15, 15};
  const auto most = summarise(ranks(records), RankAggregation::max);
  CHECK(most->collective_us == 5.0);
  CHECK(most->send_us == 15.0);
  CHECK(most->h2d_us == 0.0);
  CHECK_FALSE(most->compute_us.has_value());
  CHECK(summarise(ranks(records), RankAggregation::min)->h2d_us == 1.0);
  CHECK(summarise(ranks(records), RankAggregation::mean)->send_us == 7.5);
}

TEST_CASE("what any rank waited for a core is taken off an iteration, before the median is taken",
          "[A-20]") {
  std::vector<CellRecord> records{timed({100, 300, 100, 200}), timed({90, 290, 90, 190})};
  records[0].measured.waited_us = {0, 120, 10, 400};
  records[1].measured.waited_us = {0, 80, 0, 0};
  const auto summary = summarise(ranks(records), RankAggregation::max);
  // 100, 100, 90, 0: none waited longer than it took, and what waits leave is no less than nothing.
  CHECK(summary->median_us == 150.0);
  CHECK(summary->unwaited_us == 95.0);
  CHECK_THAT(summary->waited_share.value(), WithinRel(330.0 / 700.0, 1e-12));
}

TEST_CASE("without waits of all ranks it is not known what they cost", "[A-20]") {
  std::vector<CellRecord> records{timed({10, 10}), timed({10, 10})};
  records[0].measured.waited_us = {5, 5};
  const auto summary = summarise(ranks(records), RankAggregation::max);
  CHECK_FALSE(summary->waited_share.has_value());
  CHECK_FALSE(summary->unwaited_us.has_value());
  records[1].measured.waited_us = {5, -1};
  CHECK_FALSE(judge(ranks(records)).samples_sound);
}

TEST_CASE("where a server computes, the parts are the server's, scaled to the total", "[G-03]") {
  // The worker ends last by a hair: its time holds the server's computing as waiting.
  std::vector<CellRecord> records{timed({80, 80, 80}), timed({100, 100, 100})};
  records[0].measured.send_us = {20, 20, 20};
  records[0].measured.compute_us = {60, 60, 60};
  records[1].measured.send_us = {100, 100, 100};
  records[1].measured.compute_us = {0, 0, 0};
  const auto summary = summarise(ranks(records), RankAggregation::max);
  CHECK(summary->median_us == 100.0);
  CHECK(summary->compute_us == 75.0);
  CHECK(summary->send_us == 25.0);
}

TEST_CASE("a training step's parts are the workers', whatever its server waits", "[G-03][A-13]") {
  std::vector<CellRecord> records{timed({110, 110, 110}), timed({100, 100, 100}),
                                  timed({90, 90, 90})};
  for (auto& record : records) record.training.emplace().role = "worker";
  records[0].training->role = "server";
  records[0].measured.collective_us = {105, 105, 105};
  records[0].measured.compute_us = {5, 5, 5};
  records[1].measured.collective_us = {30, 30, 30};
  records[1].measured.compute_us = {80, 80, 80};
  records[2].measured.collective_us = {20, 20, 20};
  records[2].measured.compute_us = {70, 70, 70};
  const auto mean = summarise(ranks(records), RankAggregation::mean);
  CHECK(mean->median_us == 100.0);
  CHECK(mean->collective_us == 25.0);
  CHECK(mean->compute_us == 75.0);
  // The server ends last by waiting; the parts are the slowest worker's, scaled to the total.
  const auto most = summarise(ranks(records), RankAggregation::max);
  CHECK(most->median_us == 110.0);
  CHECK_THAT(*most->collective_us, WithinRel(33.0, 1e-9));
  CHECK_THAT(*most->compute_us, WithinRel(88.0, 1e-9));
}

TEST_CASE("percentiles need enough iterations, drift and outliers are flagged, none dropped") {
  std::vector<double> flat(30, 10.0);
  for (std::size_t i = 0; i < flat.size(); ++i) flat[i] += 0.01 * static_cast<double>(i % 5);
  flat[7] = 500;
  auto summary = summarise(ranks({timed(flat)}), RankAggregation::max);
  CHECK(summary->outliers == 1);
  CHECK(summary->max_us == 500.0);
  CHECK(summary->p95_us.has_value());
  CHECK_FALSE(summary->p99_us.has_value());
  CHECK_FALSE(summary->not_stationary);

  std::vector<double> falling;
  for (int i = 0; i < 30; ++i) falling.push_back(i < 15 ? 20.0 + i % 2 : 10.0 + i % 2);
  CHECK(summarise(ranks({timed(falling)}), RankAggregation::max)->not_stationary);
  CHECK_FALSE(summarise(ranks({timed({1, 2, 3})}), RankAggregation::max)->p95_us.has_value());
}

TEST_CASE("ranks without samples take no part") {
  const std::vector<CellRecord> records{timed({1, 2, 3}), timed({})};
  CHECK(judge(ranks(records)).status == CellStatus::ok);
  CHECK(summarise(ranks(records), RankAggregation::max)->median_us == 2.0);
  CHECK_FALSE(summarise(ranks({timed({})}), RankAggregation::max).has_value());
}

TEST_CASE("what makes a cell's outcome, worst first", "[A-38]") {
  std::vector<CellRecord> good{timed({1, 2, 3}), timed({1, 2, 3})};
  CHECK(judge(ranks(good)).status == CellStatus::ok);

  auto records = good;
  records[1].wrong = 3;
  records[1].checked = 100;
  CHECK(judge(ranks(records)).status == CellStatus::failed);
  CHECK(judge(ranks(records)).reason == "rank 1: 3 of 100 elements are wrong");

  records = good;
  records[0].status = CellStatus::unsupported;
  records[0].reason = "no float16";
  CHECK(judge(ranks(records)).status == CellStatus::unsupported);
  records[1].status = CellStatus::failed;
  records[1].reason = "boom";
  CHECK(judge(ranks(records)).reason == "rank 1: boom");

  records = good;
  records[1].batch = 4;
  CHECK_THAT(judge(ranks(records)).reason, ContainsSubstring("batch 4 against 1"));
  records = good;
  records[1].cadence = Cadence::batched;
  CHECK_THAT(judge(ranks(records)).reason, ContainsSubstring("cadence batched against isolated"));
  records = good;
  records[1].measured.total_us.pop_back();
  CHECK_THAT(judge(ranks(records)).reason, ContainsSubstring("2 samples against 3"));

  for (const double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    records = good;
    records[0].measured.total_us[1] = bad;
    const auto outcome = judge(ranks(records));
    CHECK(outcome.status == CellStatus::failed);
    CHECK_FALSE(outcome.samples_sound);
    CHECK_THAT(outcome.reason, ContainsSubstring("no time"));
  }
  records = good;
  records[0].measured.start_us = {3, 2, 1};
  CHECK_THAT(judge(ranks(records)).reason, ContainsSubstring("out of order"));
  records[0].measured.start_us = {1};
  CHECK_FALSE(judge(ranks(records)).samples_sound);
  CHECK(judge(ranks({timed({})})).reason == "no rank has a sample");
}
