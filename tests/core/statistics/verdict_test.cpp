#include "core/statistics/verdict.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

using namespace dynamiccl;

namespace {
Ratio with_interval(double value, double low, double high) {
  Ratio ratio;
  ratio.value = value;
  ratio.interval = Interval{low, high, 0.95, "t"};
  return ratio;
}
}  // namespace

TEST_CASE("a verdict needs the whole interval on one side of the band") {
  const EquivalenceBand band{0.02};
  CHECK(judge(with_interval(1.0, 0.99, 1.01), band) == Verdict::same);
  CHECK(judge(with_interval(1.1, 1.05, 1.15), band) == Verdict::slower);
  CHECK(judge(with_interval(0.9, 0.85, 0.95), band) == Verdict::faster);
  CHECK(judge(with_interval(1.02, 0.99, 1.05), band) == Verdict::unclear);
  CHECK(judge(with_interval(1.025, 1.01, 1.04), band) == Verdict::unclear);
  CHECK(judge(Ratio{2.0}, band) == Verdict::unclear);
}

TEST_CASE("where ranks waited for cores, a difference counts as far as waits leave it") {
  const EquivalenceBand band{0.02};
  const auto bound = [](double low, double high) {
    auto ratio = with_interval((low + high) / 2, low, high);
    ratio.centre = ratio.value;
    return ratio;
  };
  const auto between = [&](const Ratio& seen, const Ratio& least, const Ratio& most) {
    Ratio ratio = seen;
    ratio.waits = std::make_shared<const WaitBounds>(WaitBounds{least, most, "they waited"});
    return ratio;
  };
  const auto explained = between(bound(3, 4), bound(0.9, 1.1), bound(3, 4));
  CHECK(judge(explained, band) == Verdict::not_judged);
  CHECK_FALSE(factor_at_least(explained, band));
  CHECK(outside_band_probability(explained, band) > 0.05);
  // What is left is surely above 1, even where the times alone are not.
  const auto slower = between(bound(0.5, 90), bound(1.4, 1.6), bound(0.5, 90));
  CHECK(judge(slower, band) == Verdict::slower);
  CHECK(factor_at_least(slower, band) == 1.4);
  const auto faster = between(bound(0.2, 0.3), bound(0.1, 0.2), bound(0.6, 0.7));
  CHECK(judge(faster, band) == Verdict::faster);
  CHECK(factor_at_least(faster, band) == 0.7);
  CHECK(judge(between(bound(0.99, 1.01), bound(0.99, 1.01), bound(0.99, 1.01)), band) ==
        Verdict::same);
  CHECK(judge(between(bound(0.99, 1.01), bound(0.9, 0.95), bound(0.99, 1.01)), band) ==
        Verdict::not_judged);
  // Launches that did nothing but wait leave no bound.
  CHECK(judge(between(bound(3, 4), {}, bound(3, 4)), band) == Verdict::not_judged);
  CHECK(judge(between(bound(0.5, 4), {}, {}), band) == Verdict::unclear);
  CHECK_FALSE(factor_at_least(bound(3, 4), band));
  const auto table = judge_table({explained, bound(3, 4), slower}, band);
  CHECK(table[0] == Verdict::not_judged);
}

TEST_CASE("an unclear verdict says how many launches would settle it") {
  const auto more = launches_needed(with_interval(1.0, 0.94, 1.064), {0.02}, 10);
  REQUIRE(more);
  CHECK(*more > 80);
  CHECK(*more < 120);
  CHECK_FALSE(launches_needed(Ratio{1.0}, {0.02}, 1));
  // An interval that crosses the band by a hair needs more than there are.
  const auto hair = launches_needed(with_interval(1.0108, 1.0034, 1.0201), {0.02}, 40);
  REQUIRE(hair);
  CHECK(*hair > 40);
}

TEST_CASE("launches are looked at in growing batches, and at the maximum") {
  const StoppingRule rule{0.05, 6, 20};
  CHECK(last_look(5, rule) == 0);
  CHECK(last_look(6, rule) == 6);
  CHECK(last_look(8, rule) == 6);
  CHECK(last_look(9, rule) == 9);
  CHECK(last_look(19, rule) == 14);
  CHECK(last_look(20, rule) == 20);
}

TEST_CASE("the probability beyond the band agrees with the interval at every confidence") {
  const std::vector<double> slow{106, 108, 104, 107, 105};
  const std::vector<double> base{100, 101, 99, 100, 102};
  for (const double confidence : {0.5, 0.9, 0.95, 0.99, 0.999}) {
    const auto ratio = ratio_unpaired(slow, base, confidence);
    for (const double band : {0.0, 0.01, 0.03, 0.05}) {
      const bool outside = judge(ratio, {band}) == Verdict::slower;
      CHECK((outside_band_probability(ratio, {band}) < 1 - confidence) == outside);
    }
  }
  CHECK(outside_band_probability(Ratio{2.0}, {0.02}) == 1);
  CHECK(outside_band_probability(ratio_unpaired(base, base), {0.02}) == 1);
}

TEST_CASE("false discovery rates follow Benjamini and Hochberg") {
  // The 15 probabilities of their paper; at 5 % the first four are called.
  const std::vector<double> p{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                              0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000};
  const auto adjusted = adjusted_for_false_discoveries(p);
  CHECK(adjusted[0] == Catch::Approx(0.0015));
  CHECK(adjusted[3] == Catch::Approx(0.035625));
  CHECK(adjusted[4] == Catch::Approx(0.0603));
  CHECK(adjusted[14] == 1);
  CHECK(adjusted_for_false_discoveries({}).empty());
}

TEST_CASE("a row of a table needs more than a row alone to be called different") {
  const std::vector<double> base{100, 101, 99, 100, 102};
  const auto nearly = ratio_unpaired({104.2, 105.8, 103.4, 105.1, 104.9}, base);
  const auto equal = ratio_unpaired(base, base);
  REQUIRE(judge(nearly, {0.02}) == Verdict::slower);
  CHECK(judge_table({nearly}, {0.02}) == std::vector{Verdict::slower});
  std::vector<Ratio> table(30, equal);
  table.push_back(nearly);
  const auto verdicts = judge_table(table, {0.02});
  CHECK(verdicts.back() == Verdict::unclear);
  CHECK(verdicts.front() == judge(equal, {0.02}));
  // A row without an interval is no chance of a false alarm.
  const auto lonely = judge_table({nearly, Ratio{2.0}, Ratio{1.0}}, {0.02});
  CHECK(lonely == std::vector{Verdict::slower, Verdict::unclear, Verdict::unclear});
  // Many that are slower speak for each other.
  CHECK(judge_table(std::vector<Ratio>(30, nearly), {0.02}).front() == Verdict::slower);
}
