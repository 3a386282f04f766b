// What codecs make of values, against the plainest loop that does the same.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "tests/train/same_bits.hpp"
#include "train/codecs/loops/sparse_loops.hpp"
#include "train/codecs/powersgd.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using dynamiccl::testing::same_bits;

namespace {

/// Heavy-tailed, as gradients are.
std::vector<float> gradient_like(std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> spread(0, 1);
  std::vector<float> values(count);
  for (auto& value : values) {
    const float one = spread(random);
    value = 0.01F * one * one * one;
  }
  return values;
}

ExchangePlan plan_of(Codec codec, const std::vector<std::size_t>& counts,
                     const std::vector<std::size_t>& rows = {}) {
  TrainingSpec spec;
  spec.compression = codec;
  ExchangePlan plan;
  plan.codec = codec_settings(spec);
  plan.counts = counts;
  plan.rows = rows;
  plan.seed = 7;
  plan.pieces = cut(counts, all_together(counts.size()), plan.elements());
  return plan;
}

constexpr std::size_t kGuard = 16;
constexpr std::uint8_t kMark = 0xA5;

/// One worker's gradient of a plan with one, encoded and decoded.
struct Coded {
  Coded(GradientCodec& codec, const CodedPart& part, std::vector<float> gradient)
      : values(std::move(gradient)),
        memory(codec.frame_room(part, codec.step()) + 2 * kGuard, kMark),
        decoded(values.size(), 0.0F) {
    codec.begin_step();
    bytes = codec.encode(part, values.data(), frame());
    if (codec_row(codec.settings().codec).sum != CodecSum::reduced)
      codec.sum_frames(part, codec.step(), {frame()}, decoded.data());
  }
  std::uint8_t* frame() { return memory.data() + kGuard; }
  [[nodiscard]] bool kept_within(std::size_t limit) const {
    bool clean = bytes <= limit;
    for (std::size_t i = 0; i < kGuard; ++i)
      clean = clean && memory[i] == kMark && memory[memory.size() - 1 - i] == kMark;
    return clean;
  }
  std::vector<float> values;
  std::vector<std::uint8_t> memory;
  std::vector<float> decoded;
  std::size_t bytes = 0;
};

std::vector<Codec> with_frames() {
  std::vector<Codec> codecs;
  for (const CodecRow& row : kCodecs)
    if (row.codec != Codec::none && row.kind != CodecKind::low_rank &&
        row.kind != CodecKind::sketched)
      codecs.push_back(row.codec);
  return codecs;
}

}  // namespace

TEST_CASE("frames have the formula's bytes and nothing is written beyond them",
          "[d-58][d-59][d-61][d-64][d-68][d-69]") {
  const Codec codec = GENERATE(from_range(with_frames()));
  for (const std::size_t count : {1, 7, 8, 9, 31, 511, 512, 513, 1025, 4097, 10'000}) {
    INFO(name_of(codec) << " of " << count);
    const ExchangePlan plan = plan_of(codec, {count});
    const auto worker = make_codec({plan, 0, 2});
    const CodedPart part = coded_parts(plan, 0)[0];
    Coded coded(*worker, part, gradient_like(count));
    CHECK(coded.kept_within(worker->frame_room(part, worker->step())));
    CHECK(worker->frame_bytes(part, 0, coded.frame()) == coded.bytes);
    if (const auto bytes = codec_bytes(plan.codec, count, 1, 0)) CHECK(coded.bytes == *bytes);
  }
}

TEST_CASE("what is no number is written in place, and told where it would stay for ever",
          "[d-91]") {
  const Codec codec = GENERATE(from_range(with_frames()));
  const float odd = GENERATE(std::nanf(""), HUGE_VALF, -HUGE_VALF);
  for (const std::size_t count : {1, 9, 513, 4097}) {
    INFO(name_of(codec) << " of " << count << " with " << odd);
    const ExchangePlan plan = plan_of(codec, {count});
    const auto worker = make_codec({plan, 0, 2});
    const CodedPart part = coded_parts(plan, 0)[0];
    auto gradient = gradient_like(count);
    Coded well(*worker, part, gradient);
    CHECK(worker->boundless() == 0);
    gradient[count / 2] = odd;
    Coded coded(*worker, part, gradient);
    CHECK(coded.kept_within(worker->frame_room(part, worker->step())));
    CHECK(worker->frame_bytes(part, worker->step(), coded.frame()) == coded.bytes);
    const bool seen = std::any_of(coded.decoded.begin(), coded.decoded.end(),
                                  [](float value) { return !std::isfinite(value); });
    // Sent as it is, or kept: then it is told. Levels and signs without a memory are over with it.
    const bool remembers = plan.codec.feedback || codec == Codec::dgc || codec == Codec::diana;
    const bool shown = seen || codec_row(codec).sum == CodecSum::reduced;
    if (remembers && !shown) CHECK(worker->boundless() > 0);
    if (!remembers) CHECK(worker->boundless() == 0);
  }
}

TEST_CASE("what was sent and what was kept make up the gradients", "[d-91]") {
  const Codec codec =
      GENERATE(Codec::int8, Codec::onebit, Codec::ef_sign, Codec::terngrad, Codec::qsgd,
               Codec::natural, Codec::topk, Codec::threshold, Codec::stc, Codec::sbc,
               Codec::three_lc, Codec::adacomp, Codec::qsgd_adaptive, Codec::cocktail);
  INFO(name_of(codec));
  constexpr std::size_t kCount = 3000;
  ExchangePlan plan = plan_of(codec, {kCount});
  plan.codec.feedback = true;
  const auto worker = make_codec({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  std::vector<double> sent(kCount, 0);
  std::vector<double> wanted(kCount, 0);
  double kept = 0;
  for (unsigned step = 0; step < 50; ++step) {
    const auto gradient = gradient_like(kCount, step);
    Coded coded(*worker, part, gradient);
    kept = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      wanted[i] += gradient[i];
      sent[i] += coded.decoded[i];
      // Encoded was the gradient with what was kept of the last ones.
      kept += std::abs(coded.values[i] - coded.decoded[i]);
      CHECK(std::abs(wanted[i] - sent[i] - (coded.values[i] - coded.decoded[i])) < 1e-4);
    }
  }
  CHECK(kept > 0);
  worker->restart();
  Coded first(*worker, part, gradient_like(kCount, 0));
  CHECK(same_bits(first.values, gradient_like(kCount, 0)));
}

TEST_CASE("random codecs have the gradient as expected value", "[d-59][d-61][d-68][d-88]") {
  const Codec codec =
      GENERATE(Codec::terngrad, Codec::qsgd, Codec::natural, Codec::randomk, Codec::qsgd_adaptive);
  INFO(name_of(codec));
  constexpr std::size_t kCount = 256;
  constexpr int kDraws = 4000;
  ExchangePlan plan = plan_of(codec, {kCount});
  plan.codec.feedback = false;
  plan.codec.density = 0.1;
  const auto worker = make_codec({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  auto gradient = gradient_like(kCount);
  // TernGrad cuts at 2.5 deviations: none is beyond.
  for (auto& value : gradient) value = std::clamp(value, -0.01F, 0.01F);
  std::vector<double> mean(kCount, 0);
  std::vector<double> squares(kCount, 0);
  for (int draw = 0; draw < kDraws; ++draw) {
    Coded coded(*worker, part, gradient);
    if (codec == Codec::randomk)
      worker->decode(part, worker->step(), coded.frame(), coded.decoded.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      const double off = coded.decoded[i] - gradient[i];
      mean[i] += off / kDraws;
      squares[i] += off * off / kDraws;
    }
  }
  // Squared means in units of their own variance are 1 on average.
  double z = 0;
  std::size_t noisy = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    // What is drawn next to never has no variance yet.
    if (squares[i] <= 1e-18 || std::abs(gradient[i]) < 1e-3F) continue;
    z += mean[i] * mean[i] / (squares[i] / kDraws);
    ++noisy;
  }
  REQUIRE(noisy > kCount / 4);
  CHECK(z / static_cast<double>(noisy) > 0.7);
  CHECK(z / static_cast<double>(noisy) < 1.35);
}

TEST_CASE("1-bit SGD sends the means of both sides", "[d-58]") {
  const std::vector<float> values{1, -2, 3, -4, 5, 0, -6, 7, 2};
  const auto coded = [&](Codec codec) {
    const ExchangePlan plan = plan_of(codec, {values.size()});
    const auto worker = make_codec({plan, 0, 1});
    return Coded(*worker, coded_parts(plan, 0)[0], values);
  };
  CHECK(coded(Codec::onebit).bytes == 10);
  const auto decoded = coded(Codec::onebit).decoded;
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(decoded[i] == (values[i] < 0 ? -4 : 3));
  const auto scaled = coded(Codec::ef_sign).decoded;
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(scaled[i] == (values[i] < 0 ? -1 : 1) * 30.0F / 9);
}

TEST_CASE("the majority of signs decides, as many for as against do nothing", "[d-60]") {
  const ExchangePlan plan = plan_of(Codec::signsgd, {10});
  const CodedPart part = coded_parts(plan, 0)[0];
  std::vector<std::vector<float>> gradients(4, std::vector<float>(10, 1.0F));
  for (std::size_t w = 0; w < 4; ++w)
    for (std::size_t i = 0; i < 10; ++i)
      if (w < i % 5) gradients[w][i] = -3;
  std::vector<std::vector<std::uint8_t>> frames(4, std::vector<std::uint8_t>(2));
  std::vector<const std::uint8_t*> all;
  for (std::size_t w = 0; w < 4; ++w) {
    const auto worker = make_codec({plan, static_cast<int>(w), 4});
    worker->begin_step();
    worker->encode(part, gradients[w].data(), frames[w].data());
    all.push_back(frames[w].data());
  }
  std::vector<float> sum(10);
  make_codec({plan, kReader, 4})->sum_frames(part, 0, all, sum.data());
  for (std::size_t i = 0; i < 10; ++i)
    CHECK(sum[i] == (i % 5 < 2 ? 4.0F : i % 5 == 2 ? 0.0F : -4.0F));
}

TEST_CASE("top-k takes the largest magnitudes, of equals the first", "[d-69]") {
  const auto check = [](const std::vector<float>& values, std::size_t kept) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(values[a]) > std::abs(values[b]);
    });
    std::vector<float> wanted(values.size(), 0.0F);
    for (std::size_t i = 0; i < kept; ++i) wanted[order[i]] = values[order[i]];
    std::vector<std::uint8_t> frame(8 * kept);
    REQUIRE(encode_largest(values.data(), values.size(), kept, frame.data()) == 8 * kept);
    std::vector<float> decoded(values.size(), 0.0F);
    add_sparse(frame.data(), kept, values.size(), 1, decoded.data());
    CHECK(decoded == wanted);
  };
  for (const std::size_t count : {1, 15, 16, 17, 1000, 20'000})
    for (const std::size_t kept : {std::size_t{1}, count / 100 + 1, count / 2 + 1, count})
      check(gradient_like(count), std::min(kept, count));
  check(std::vector<float>(100, 0.0F), 10);
  check(std::vector<float>(100, -2.0F), 33);
}

TEST_CASE("a threshold takes all from it on, and a wrong place is refused", "[d-70]") {
  const auto values = gradient_like(1000);
  ExchangePlan plan = plan_of(Codec::threshold, {values.size()});
  plan.codec.threshold = 0.01;
  const auto worker = make_codec({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  Coded coded(*worker, part, values);
  std::uint32_t kept = 0;
  std::memcpy(&kept, coded.frame(), sizeof kept);
  CHECK(coded.bytes == 4 + 8 * kept);
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(coded.decoded[i] == (std::abs(values[i]) >= 0.01F ? values[i] : 0.0F));
  const std::uint32_t beyond = 1000;
  std::memcpy(coded.frame() + 4, &beyond, sizeof beyond);
  CHECK_THROWS_WITH(worker->add(part, 0, coded.frame(), 1, coded.decoded.data()),
                    ContainsSubstring("beyond its end"));
}

TEST_CASE("STC sends signs of the largest and their mean, SBC one side alone", "[d-73][d-82]") {
  const std::vector<float> values{0.5F, -4, 0, 3, -2, 0.25F, 1, -1};
  const auto decoded = [&](Codec codec) {
    ExchangePlan plan = plan_of(codec, {values.size()});
    plan.codec.density = 3.0 / 8;
    const auto worker = make_codec({plan, 0, 1});
    const CodedPart part = coded_parts(plan, 0)[0];
    return Coded(*worker, part, values).decoded;
  };
  CHECK(decoded(Codec::stc) == std::vector<float>{0, -3, 0, 3, -3, 0, 0, 0});
  // 4 + 2 + 1 of the negative ones, 3 + 1 + 0.5 of the positive.
  const float mean = -7.0F / 3;
  CHECK(decoded(Codec::sbc) == std::vector<float>{0, mean, 0, 0, mean, 0, 0, mean});
}

TEST_CASE("CocktailSGD is 117 times smaller, and sends the largest of a sample in four bits",
          "[d-83]") {
  ExchangePlan plan = plan_of(Codec::cocktail, {100'000});
  plan.codec.density = 4.0 / 1.75 / 117;
  const auto worker = make_codec({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  const auto values = gradient_like(part.count);
  const Coded coded(*worker, part, values);
  CHECK_THAT(4.0 * 100'000 / static_cast<double>(coded.bytes), WithinRel(117, 0.01));
  float most = 0;
  std::size_t sent = 0;
  for (const float value : coded.decoded) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (coded.decoded[i] == 0) continue;
    ++sent;
    CHECK(std::abs(values[i] - coded.decoded[i]) <= most / 14 * 1.001F);
  }
  CHECK(sent > 100);
  CHECK(sent <= kept_values(plan.codec.density, values.size()));
}

TEST_CASE("3LC packs five levels and runs of zeros into bytes", "[d-84]") {
  std::vector<float> values(200, 0.1F);
  values[0] = 1;
  values[3] = -0.6F;
  values[199] = -1;
  const ExchangePlan plan = plan_of(Codec::three_lc, {values.size()});
  const auto worker = make_codec({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  const Coded coded(*worker, part, values);
  // Both ends, and 38 bytes of zeros between them as runs of 14, 14 and 10.
  CHECK(coded.bytes == 8 + 5);
  std::vector<float> expected(200, 0.0F);
  expected[0] = 1;
  expected[3] = expected[199] = -1;
  CHECK(coded.decoded == expected);
}

TEST_CASE("AdaComp sends what would reach its bin's largest with one more gradient",
          "[d-71][d-82]") {
  std::vector<float> values(kAdaBin + 2, 0.1F);
  values[1] = 1;
  values[2] = -0.5F;  // twice it is the largest
  values[3] = 0.49F;
  values[kAdaBin] = -2;
  const ExchangePlan plan = plan_of(Codec::adacomp, {values.size()});
  const auto worker = make_codec({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  const Coded coded(*worker, part, values);
  std::vector<float> expected(values.size(), 0.0F);
  expected[1] = 1.5F;  // the mean of both bins' largest
  expected[2] = expected[kAdaBin] = -1.5F;
  CHECK(coded.decoded == expected);
}

TEST_CASE("random-k draws other places in each step, the same on all workers", "[d-68]") {
  const ExchangePlan plan = plan_of(Codec::randomk, {1000});
  const CodedPart part = coded_parts(plan, 0)[0];
  std::set<std::size_t> seen;
  for (std::uint64_t step = 0; step < 400; ++step) {
    std::set<std::size_t> places;
    for (std::size_t i = 0; i < 10; ++i)
      places.insert(drawn_place(i, 10, 1000, shared_key(plan.seed, step, part)));
    CHECK(places.size() == 10);
    CHECK(*places.rbegin() < 1000);
    seen.insert(places.begin(), places.end());
  }
  CHECK(seen.size() > 950);
}

namespace {

/// Of rank two: two products of vectors, each times its weight.
std::vector<float> two_directions(std::size_t rows, std::size_t columns, float first = 1,
                                  float second = 1) {
  const auto a = gradient_like(2 * rows, 3);
  const auto b = gradient_like(2 * columns, 4);
  std::vector<float> matrix(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      matrix[i * columns + j] = first * a[i] * b[j] + second * a[rows + i] * b[columns + j];
  return matrix;
}

}  // namespace

TEST_CASE("two factors are exact for a matrix of that rank", "[d-95]") {
  constexpr std::size_t kRows = 40;
  constexpr std::size_t kColumns = 30;
  const auto matrix = two_directions(kRows, kColumns);
  const ExchangePlan plan = plan_of(Codec::powersgd, {matrix.size()}, {kRows});
  const CodedPart part = coded_parts(plan, 0)[0];
  PowerSgd worker({plan, 0, 1});
  worker.begin_step();
  REQUIRE(worker.is_factored(part));
  std::vector<float> left(2 * kRows);
  std::vector<float> right(2 * kColumns);
  std::vector<float> values = matrix;
  CHECK(worker.encode_left(part, values.data(), left.data()) == left.size());
  CHECK(worker.encode_right(part, values.data(), left.data(), right.data()) == right.size());
  for (std::size_t k = 0; k < 2; ++k) CHECK_THAT(norm(&left[k * kRows], kRows), WithinRel(1, 1e-6));
  const double across =
      std::inner_product(left.begin(), left.begin() + kRows, left.begin() + kRows, 0.0);
  CHECK(std::abs(across) < 1e-5);
  worker.decode_factors(part, left.data(), right.data(), values.data());
  const double size = norm(matrix.data(), matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i)
    CHECK(std::abs(values[i] - matrix[i]) < 1e-5 * size);
}

TEST_CASE("two factors begin anew after gradients that were zero or of a lower rank", "[d-95]") {
  constexpr std::size_t kRows = 40;
  constexpr std::size_t kColumns = 30;
  const auto matrix = [](float first, float second) {
    return two_directions(kRows, kColumns, first, second);
  };
  ExchangePlan plan = plan_of(Codec::powersgd, {kRows * kColumns}, {kRows});
  plan.codec.feedback = GENERATE(false, true);
  const float early = GENERATE(0.0F, 1.0F);  // nothing, or one of two directions
  PowerSgd worker({plan, 0, 1});
  const CodedPart part = coded_parts(plan, 0)[0];
  std::vector<float> left(2 * kRows);
  std::vector<float> right(2 * kColumns);
  const auto pass = [&](std::vector<float> values) {
    worker.begin_step();
    worker.encode_left(part, values.data(), left.data());
    worker.encode_right(part, values.data(), left.data(), right.data());
    worker.decode_factors(part, left.data(), right.data(), values.data());
    return values;
  };
  for (int step = 0; step < 3; ++step) pass(matrix(early, 0));
  const auto wanted = matrix(1, 1);
  // A few turns of the power iteration: what a lower rank left of the second direction is rounding.
  for (int step = 0; step < 4; ++step) pass(wanted);
  const auto sent = pass(wanted);
  const double size = norm(wanted.data(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (std::abs(sent[i] - wanted[i]) > 1e-3 * size) FAIL("place " << i << ": " << sent[i]);
}

TEST_CASE("more columns than a matrix has directions say none of them twice", "[d-95]") {
  constexpr std::size_t kRows = 60;
  constexpr std::size_t kColumns = 50;
  const auto matrix = two_directions(kRows, kColumns);
  ExchangePlan plan = plan_of(Codec::powersgd, {matrix.size()}, {kRows});
  constexpr std::size_t kRank = 10;
  plan.codec.rank = kRank;
  plan.codec.feedback = false;
  const CodedPart part = coded_parts(plan, 0)[0];
  PowerSgd worker({plan, 0, 1});
  REQUIRE(worker.is_factored(part));
  const double size = norm(matrix.data(), matrix.size());
  std::vector<float> left(kRank * kRows);
  std::vector<float> right(kRank * kColumns);
  for (int step = 0; step < 3; ++step) {
    INFO("step " << step);
    worker.begin_step();
    std::vector<float> values = matrix;
    worker.encode_left(part, values.data(), left.data());
    worker.encode_right(part, values.data(), left.data(), right.data());
    worker.decode_factors(part, left.data(), right.data(), values.data());
    for (std::size_t i = 0; i < matrix.size(); ++i) values[i] -= matrix[i];
    CHECK(norm(values.data(), values.size()) < 1e-4 * size);
  }
}

TEST_CASE("DGC sends what momentum has gathered and forgets both there", "[d-75][d-92][d-93]") {
  ExchangePlan plan = plan_of(Codec::dgc, {4});
  plan.codec.density = 0.25;
  plan.codec.momentum = 0.5;
  const auto worker = make_codec({plan, 0, 4});
  const CodedPart part = coded_parts(plan, 0)[0];
  Coded first(*worker, part, {1, 0.5F, 0, 0});
  CHECK(first.decoded == std::vector<float>{1, 0, 0, 0});
  // 0.5 waits; its velocity is 0.25 then, and with 0.5 more 0.75.
  Coded second(*worker, part, {1, 0.5F, 0, 0});
  CHECK(second.decoded == std::vector<float>{0, 1.25F, 0, 0});
  // The first began anew in the second step: 1 waits, velocity 0.5.
  Coded third(*worker, part, {0, 0, 0, 0});
  CHECK(third.decoded == std::vector<float>{1.5F, 0, 0, 0});
  plan.codec.clip = 1;
  const auto clipped = make_codec({plan, 0, 4});
  // Of four workers each may have a norm of 1/2.
  Coded held(*clipped, part, {3, 4, 0, 0});
  CHECK_THAT(held.decoded[1], WithinRel(0.4F, 1e-6F));
}

TEST_CASE("parts of a message are gradients, cut where the plan cuts them") {
  ExchangePlan plan = plan_of(Codec::topk, {10, 6, 8}, {2, 1, 4});
  plan.pieces = cut(plan.counts, all_together(3), 12);
  REQUIRE(plan.pieces.size() == 2);
  const auto first = coded_parts(plan, 0);
  const auto second = coded_parts(plan, 1);
  REQUIRE(first.size() == 2);
  REQUIRE(second.size() == 2);
  CHECK(first[0].rows == 2);
  CHECK(first[1].offset == 10);
  CHECK(first[1].count == 2);
  CHECK(second[0].gradient == 1);
  CHECK(second[0].count == 4);
  CHECK(second[1].rows == 4);
  CHECK(message_bytes(plan, 1, 0) == 16);
  plan.codec.codec = Codec::signsgd;
  CHECK(message_bytes(plan, 1, 0) == 4);
}
