// Codecs whose sum of all workers is part of what they do: gTop-k, DIANA, sketches; and bits by
// layer.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "train/codecs/gtopk.hpp"
#include "train/codecs/sketch.hpp"
#include "train/oracle/codec_replay.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

using Values = std::vector<float>;

Values drawn_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> spread(0, 1);
  Values values(count);
  for (auto& value : values) {
    const float one = spread(random);
    value = one * one * one;
  }
  return values;
}

ExchangePlan sum_plan(Codec codec, std::size_t count, double density = 0.05) {
  TrainingSpec spec;
  spec.compression = codec;
  if (codec_row(codec).by_density) spec.density = density;
  ExchangePlan plan;
  plan.method = TrainingMethod::bsp_a2a;
  plan.codec = codec_settings(spec);
  plan.counts = {count};
  plan.rows = {1};
  plan.seed = 7;
  plan.pieces = cut(plan.counts, all_together(1), count);
  return plan;
}

/// Frame of so many values as encode_largest() makes it.
std::vector<std::uint8_t> placed_frame(const std::vector<PlacedValue>& values) {
  std::vector<std::uint8_t> frame(8 * values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&frame[4 * i], &values[i].place, 4);
    std::memcpy(&frame[4 * (values.size() + i)], &values[i].value, 4);
  }
  return frame;
}

double length_of_all(const Values& values) { return norm(values.data(), values.size()); }

}  // namespace

TEST_CASE("a merge keeps the largest of both workers' sums, of equals the first", "[d-72]") {
  auto lower = placed_frame({{1, 5}, {4, -2}, {9, 1}});
  const auto upper = placed_frame({{1, -4.5F}, {4, -2}, {7, 1}});
  std::vector<PlacedValue> dropped;
  merge_largest(lower.data(), upper.data(), 3, dropped);
  // -4 at place 4; 1 at 7 stands before 1 at 9; of place 1 half is left.
  CHECK(lower == placed_frame({{4, -4}, {7, 1}, {9, 1}}));
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].place == 1);
  CHECK(dropped[0].value == 0.5F);
}

TEST_CASE("gTop-k's tree reaches every worker once, however many there are", "[d-72]") {
  for (const int workers : {1, 2, 3, 4, 5, 8, 13}) {
    std::vector<int> reached(static_cast<std::size_t>(workers), 0);
    for (int worker = 0; worker < workers; ++worker) {
      const auto children = merge_children(worker, workers);
      // Messages of a worker grow with the logarithm of the workers.
      CHECK(static_cast<double>(children.size()) <= std::ceil(std::log2(workers)));
      for (const int child : children) {
        CHECK(merge_parent(child) == worker);
        ++reached[static_cast<std::size_t>(child)];
      }
    }
    for (int worker = 0; worker < workers; ++worker)
      CHECK(reached[static_cast<std::size_t>(worker)] == (worker > 0 ? 1 : 0));
  }
}

namespace {

/// Each value of all workers' gradients less what was sent of it stays in their residuals.
void check_residuals(ReplayedSum& sum, int workers, const std::vector<double>& balance) {
  // What is encoded next is the residual, where gradients are zero.
  for (int w = 0; w < workers; ++w) sum.values(w).assign(balance.size(), 0.0F);
  sum.sum();
  for (std::size_t i = 0; i < balance.size(); ++i) {
    double kept = 0;
    for (int w = 0; w < workers; ++w) kept += sum.values(w)[i];
    CHECK_THAT(kept, WithinAbs(balance[i], 1e-3));
  }
}

}  // namespace

TEST_CASE("gTop-k sends k values of all workers together and loses none of the others",
          "[d-72][d-91]") {
  const int workers = GENERATE(1, 2, 3, 4, 5);
  INFO(workers);
  constexpr std::size_t kCount = 400;
  constexpr std::size_t kKept = 20;
  ReplayedSum sum(sum_plan(Codec::gtopk, kCount), workers);
  std::vector<double> balance(kCount, 0);  // gradients less what was sent
  for (unsigned step = 0; step < 30; ++step) {
    for (int w = 0; w < workers; ++w) {
      sum.values(w) = drawn_values(kCount, 100 * step + static_cast<unsigned>(w));
      for (std::size_t i = 0; i < kCount; ++i) balance[i] += sum.values(w)[i];
    }
    const Values& sent = sum.sum();
    CHECK(std::count_if(sent.begin(), sent.end(), [](float v) { return v != 0; }) <=
          static_cast<std::ptrdiff_t>(kKept));
    for (std::size_t i = 0; i < kCount; ++i) balance[i] -= sent[i];
  }
  check_residuals(sum, workers, balance);
}

TEST_CASE("of two workers gTop-k selects what is largest in their sum", "[d-72]") {
  constexpr std::size_t kCount = 8;
  ReplayedSum sum(sum_plan(Codec::gtopk, kCount, 0.25), 2);
  sum.values(0) = {5, 3, 0, 0, 0, 0, 0, 1};
  sum.values(1) = {-4, 3, 0, 4, 0, 0, 0, 2};
  // Each sends its two largest: 5 and 3, -4 and 4, whose sums are 1, 3 and 4.
  CHECK(sum.sum() == Values{0, 3, 0, 4, 0, 0, 0, 0});
  for (int w = 0; w < 2; ++w) sum.values(w).assign(kCount, 0.0F);
  // 5 and -4 came back to those who had sent them, and the second one's 3 was not sent.
  CHECK(sum.sum() == Values{1, 3, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("DIANA learns gradients, so that its noise dies where theirs does", "[d-62]") {
  constexpr std::size_t kCount = 1000;
  const Values first = drawn_values(kCount, 1);
  const Values second = drawn_values(kCount, 2);
  Values wanted(kCount);
  for (std::size_t i = 0; i < kCount; ++i) wanted[i] = first[i] + second[i];
  const auto off_after = [&](Codec codec) {
    ReplayedSum sum(sum_plan(codec, kCount), 2);
    double off = 0;
    for (int step = 0; step < 120; ++step) {
      sum.values(0) = first;
      sum.values(1) = second;
      Values apart = sum.sum();
      for (std::size_t i = 0; i < kCount; ++i) apart[i] -= wanted[i];
      off = length_of_all(apart) / length_of_all(wanted);
    }
    return off;
  };
  CHECK(off_after(Codec::qsgd) > 0.1);
  CHECK(off_after(Codec::diana) < 1e-4);
}

TEST_CASE("DIANA's rate is what its quantiser's noise allows", "[d-62]") {
  TrainingSpec spec;
  spec.compression = Codec::diana;
  CHECK_THAT(shift_rate_of(codec_settings(spec), 512),
             WithinAbs(1 / (1 + std::sqrt(512.0) / 7), 1e-12));
  spec.bits = 8;
  CHECK_THAT(shift_rate_of(codec_settings(spec), 10'000),
             WithinAbs(1 / (1 + 512.0 / (127.0 * 127.0)), 1e-12));
}

TEST_CASE("a sketch finds what is large in the sum alone, and keeps the rest", "[d-86]") {
  constexpr std::size_t kCount = 5000;
  const int workers = GENERATE(1, 2, 3);
  ReplayedSum sum(sum_plan(Codec::sketch, kCount, 0.01), workers);
  std::vector<double> balance(kCount, 0);
  for (unsigned step = 0; step < 5; ++step) {
    for (int w = 0; w < workers; ++w) {
      Values& values = sum.values(w);
      values = drawn_values(kCount, 10 * step + static_cast<unsigned>(w));
      for (float& each : values) each *= 0.05F;
      // Each worker has a part of what is large together.
      for (std::size_t i = 0; i < 10; ++i)
        values[400 * i + step] += 100.0F / static_cast<float>(workers);
      for (std::size_t i = 0; i < kCount; ++i) balance[i] += values[i];
    }
    const Values sent = sum.sum();
    for (std::size_t i = 0; i < 10; ++i) CHECK(sent[400 * i + step] > 90);
    CHECK(std::count_if(sent.begin(), sent.end(), [](float v) { return v != 0; }) <= 50);
    for (std::size_t i = 0; i < kCount; ++i) balance[i] -= sent[i];
  }
  check_residuals(sum, workers, balance);
}

TEST_CASE("fixed cells have room for the sum, and show what is no number", "[d-86]") {
  Values cells{1.0F, -3.0F, 0.25F};
  fix_cells(cells.data(), cells.size(), 6.0);  // two workers' largest
  std::vector<std::int32_t> fixed(3);
  std::memcpy(fixed.data(), cells.data(), 12);
  CHECK(fixed[1] == -3 * fixed[0]);
  CHECK(4 * fixed[2] == fixed[0]);
  CHECK(2 * std::int64_t{std::abs(fixed[1])} < (std::int64_t{1} << 30));
  CHECK(std::abs(fixed[1]) > (1 << 27));
  const float odd_value = GENERATE(std::nanf(""), -std::nanf(""), -HUGE_VALF);
  Values odd{1.0F, odd_value, 2.0F};
  CHECK(std::isinf(largest_cell(odd.data(), odd.size())));
  fix_cells(odd.data(), odd.size(), largest_cell(odd.data(), odd.size()));
  std::memcpy(fixed.data(), odd.data(), 12);
  CHECK(fixed == std::vector<std::int32_t>{0, 1, 0});
  Values nothing(3, 0.0F);
  fix_cells(nothing.data(), 3, largest_cell(nothing.data(), 3));
  CHECK(nothing == Values(3, 0.0F));
}

TEST_CASE("what is no number goes through a sketch to all, once", "[d-86]") {
  constexpr std::size_t kCount = 5000;
  ReplayedSum sum(sum_plan(Codec::sketch, kCount, 0.01), 3);
  const auto draw = [&](unsigned seed) {
    for (int w = 0; w < 3; ++w)
      sum.values(w) = drawn_values(kCount, seed + static_cast<unsigned>(w));
  };
  draw(1);
  sum.values(1)[1234] = std::nanf("");
  sum.values(2)[4321] = HUGE_VALF;
  const Values sent = sum.sum();
  for (std::size_t i = 0; i < kCount; ++i)
    if (std::isfinite(sent[i]) == (i == 1234 || i == 4321)) FAIL("place " << i << ": " << sent[i]);
  // Nothing of it is left behind.
  for (int step = 0; step < 3; ++step) {
    draw(10 * static_cast<unsigned>(step) + 4);
    for (const float each : sum.sum()) REQUIRE(std::isfinite(each));
    for (int w = 0; w < 3; ++w)
      for (const float each : sum.values(w)) REQUIRE(std::isfinite(each));
  }
}

TEST_CASE("bits by size and by significance", "[d-63][d-88]") {
  ExchangePlan plan = sum_plan(Codec::qsgd, 4096);
  plan.codec.layer_bits = LayerBits::size;
  CHECK(codec_bytes(plan.codec, 4096, 1, 0) == 4096U + 4 * 8);
  CHECK(codec_bytes(plan.codec, 5120, 1, 0) == 2560U + 4 * 10);
  plan = sum_plan(Codec::qsgd_adaptive, 512);
  plan.counts = {512, 512, 512};
  plan.pieces = cut(plan.counts, all_together(3), 1536);
  const auto worker = make_codec({plan, 0, 1});
  const auto parts = coded_parts(plan, 0);
  std::vector<std::uint8_t> frame(worker->frame_room(parts[0], 0));
  const auto bytes_of = [&](std::size_t part, float size) {
    Values values(512, size);
    return worker->encode(parts[part], values.data(), frame.data());
  };
  constexpr std::size_t kHeads = 8;  // bits and a norm
  worker->begin_step();
  // Nothing is known of what is usual.
  CHECK(bytes_of(0, 1) == 512 + kHeads);
  CHECK(bytes_of(1, 0.3F) == 512 + kHeads);
  CHECK(bytes_of(2, 0.01F) == 512 + kHeads);
  worker->begin_step();
  // Usual is 0.6.
  CHECK(bytes_of(0, 1) == 512 + kHeads);
  CHECK(bytes_of(1, 0.3F) == 256 + kHeads);
  CHECK(bytes_of(2, 0.01F) == 128 + kHeads);
  frame[0] = 3;
  Values sum(512, 0.0F);
  CHECK_THROWS_WITH(worker->sum_frames(parts[0], 1, {frame.data()}, sum.data()),
                    ContainsSubstring("neither 2, 4 nor 8 bits"));
}
