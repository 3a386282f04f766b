#include "workers/collectives/sum.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

using namespace dynamiccl;

namespace {

float widen_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace

TEST_CASE("elements are added for every count, in place or not") {
  for (const std::size_t count : {0U, 1U, 7U, 8U, 31U, 1000U}) {
    std::vector<float> a(count);
    std::vector<float> b(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = static_cast<float>(i);
      b[i] = 0.5F * static_cast<float>(i);
    }
    std::vector<float> out(count);
    sum_elements(out.data(), a.data(), b.data(), count, DataType::float32);
    sum_elements(b.data(), a.data(), b.data(), count, DataType::float32);
    CHECK(out == b);
    for (std::size_t i = 0; i < count; ++i) REQUIRE(out[i] == 1.5F * static_cast<float>(i));
  }
}

TEST_CASE("integer sums wrap instead of being undefined") {
  const std::int32_t a = std::numeric_limits<std::int32_t>::max();
  const std::int32_t b = 1;
  std::int32_t out = 0;
  sum_elements(&out, &a, &b, 1, DataType::int32);
  CHECK(out == std::numeric_limits<std::int32_t>::min());
}

TEST_CASE("float16 sums are the nearest float16 of the true sum") {
  std::mt19937 random(1);
  std::vector<_Float16> a(2000);
  std::vector<_Float16> b(2000);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<_Float16>(std::ldexp(static_cast<float>(random() % 4096), -6));
    b[i] = static_cast<_Float16>(-std::ldexp(static_cast<float>(random() % 4096), -9));
  }
  std::vector<_Float16> out(a.size());
  sum_elements(out.data(), a.data(), b.data(), a.size(), DataType::float16);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto expected =
        static_cast<_Float16>(static_cast<double>(a[i]) + static_cast<double>(b[i]));
    REQUIRE(std::bit_cast<std::uint16_t>(out[i]) == std::bit_cast<std::uint16_t>(expected));
  }
}

TEST_CASE("bfloat16 sums round to nearest even and keep NaN") {
  // 256 + 1 lies halfway between 256 and 258: even is 256; 258 + 1 goes up to 260.
  const std::vector<std::uint16_t> a{0x4380, 0x4381, 0x3F80, 0x7F80};
  const std::vector<std::uint16_t> b{0x3F80, 0x3F80, 0x3F80, 0xFF80};
  std::vector<std::uint16_t> out(a.size());
  sum_elements(out.data(), a.data(), b.data(), a.size(), DataType::bfloat16);
  CHECK(widen_bfloat16(out[0]) == 256.0F);
  CHECK(widen_bfloat16(out[1]) == 260.0F);
  CHECK(widen_bfloat16(out[2]) == 2.0F);
  CHECK(std::isnan(widen_bfloat16(out[3])));
}
