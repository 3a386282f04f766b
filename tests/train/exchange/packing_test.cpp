#include "train/exchange/packing.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "tests/train/same_bits.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::same_bits;

namespace {

constexpr std::size_t kHeader = 12;

/// Guard bytes on both sides of a frame see what is written beyond its limit.
struct Frame {
  explicit Frame(const std::vector<float>& values, PackLoops loops = PackLoops::widest)
      : memory(packed_limit(values.size()) + 2 * kGuard, kMark), count(values.size()) {
    bytes = pack_exponents(values.data(), count, at(), loops);
  }
  std::uint8_t* at() { return memory.data() + kGuard; }
  [[nodiscard]] bool kept_within() const {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (memory[i] != kMark || memory[memory.size() - 1 - i] != kMark) return false;
    return bytes <= packed_limit(count);
  }
  std::vector<float> unpacked(PackLoops loops = PackLoops::widest) {
    std::vector<float> values(count + 1, 1.5F);
    unpack_exponents(at(), count, values.data(), loops);
    CHECK(values.back() == 1.5F);
    values.pop_back();
    return values;
  }

  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kMark = 0xa5;
  std::vector<std::uint8_t> memory;
  std::size_t count;
  std::size_t bytes = 0;
};

std::vector<float> made(std::size_t count, const std::function<float(std::size_t)>& value) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(value(i));
  return values;
}

float from_bits(std::uint32_t word) {
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace

TEST_CASE("packed values come back as the same bits, whatever they are", "[packing]") {
  std::mt19937 random(7);
  std::normal_distribution<float> spread(0, 1e-3F);
  const std::vector<std::function<float(std::size_t)>> kinds{
      [&](std::size_t) { return spread(random); },
      [&](std::size_t) { return from_bits(static_cast<std::uint32_t>(random())); },
      [](std::size_t) { return 0.0F; },
      [](std::size_t i) { return i % 2 == 0 ? -0.0F : 0.0F; },
      [](std::size_t i) { return from_bits(static_cast<std::uint32_t>(i)); },  // denormals
      [](std::size_t i) { return from_bits(0x7f800000U + static_cast<std::uint32_t>(i)); },  // NaNs
      [](std::size_t i) { return from_bits(static_cast<std::uint32_t>(i) << 23); },
      [&](std::size_t i) { return i % 3 == 0 ? 1e30F : spread(random); }};
  const std::size_t kind = GENERATE(range<std::size_t>(0, 8));
  for (const std::size_t count :
       {0U, 1U, 7U, 8U, 9U, 15U, 16U, 17U, 24U, 31U, 100U, 2047U, 2048U, 32768U, 32771U}) {
    INFO("kind " << kind << ", " << count << " values");
    const auto values = made(count, kinds.at(kind));
    Frame frame(values);
    CHECK(frame.kept_within());
    // What cannot be packed takes no more than a header beside its own bytes.
    CHECK(frame.bytes <= count * sizeof(float) + kHeader);
    CHECK(same_bits(frame.unpacked(), values));
    // Ranks may have different processors.
    Frame plain(values, PackLoops::plain);
    REQUIRE(plain.bytes == frame.bytes);
    CHECK(std::memcmp(plain.at(), frame.at(), frame.bytes) == 0);
    CHECK(same_bits(frame.unpacked(PackLoops::plain), values));
  }
}

TEST_CASE("values spread as gradients are take 0.85 of their bytes", "[packing]") {
  std::mt19937 random(7);
  std::normal_distribution<float> spread(0, GENERATE(1.0F, 1e-5F, 1e-30F));
  Frame frame(made(32768, [&](std::size_t) { return spread(random); }));
  const double share = static_cast<double>(frame.bytes) / (32768.0 * sizeof(float));
  CHECK(share < 0.86);
  CHECK(share > 0.84);
}

TEST_CASE("a damaged frame is an error, and nothing is written past its values", "[packing]") {
  std::mt19937 random(7);
  std::normal_distribution<float> spread(0, 1.0F);
  const auto values = made(1000, [&](std::size_t) { return spread(random); });
  Frame other(made(999, [&](std::size_t) { return spread(random); }));
  std::vector<float> out(1000);
  other.memory.resize(Frame(values).memory.size());
  CHECK_THROWS_WITH(unpack_exponents(other.at(), 1000, out.data()),
                    ContainsSubstring("999 values"));
  // Every code says that an exponent of its own follows.
  Frame frame(values);
  const std::size_t fractions = 3 * values.size();
  std::memset(frame.at() + kHeader + fractions, 0xff, fractions / 8);
  CHECK_THROWS_WITH(unpack_exponents(frame.at(), 1000, out.data()), ContainsSubstring("damaged"));
}
