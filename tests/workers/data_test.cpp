#include "workers/data/data.hpp"

#include <fmt/format.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>
#include <set>

using namespace dynamiccl;

namespace {

constexpr std::array kTypes{DataType::float32, DataType::float64, DataType::float16,
                            DataType::bfloat16, DataType::int32};

std::vector<std::byte> filled(const DataSource& source, int rank, std::uint64_t first,
                              std::size_t count) {
  std::vector<std::byte> data(count * element_bytes(source.type()));
  source.fill(data.data(), rank, first, count);
  return data;
}

std::vector<std::uint32_t> values(const DataSource& source, int rank, std::uint64_t first,
                                  std::size_t count) {
  std::vector<std::uint32_t> sums(count, 0);
  source.add_values(sums.data(), rank, first, count);
  return sums;
}

}  // namespace

TEST_CASE("an element's value depends on seed, cell, rank and index alone") {
  const DataSource source(data_key(1, "cell"), DataType::int32, 4);
  const auto whole = values(source, 2, 0, 5000);
  // Any window, aligned to the inner blocks or not, shows the same values.
  for (const std::size_t first : {0U, 1U, 1023U, 1024U, 1025U, 3000U}) {
    const auto window = values(source, 2, first, 1500);
    CHECK(std::equal(window.begin(), window.end(), whole.begin() + static_cast<long>(first)));
  }
  CHECK(values(source, 3, 0, 5000) != whole);
  CHECK(values(DataSource(data_key(2, "cell"), DataType::int32, 4), 2, 0, 5000) != whole);
  CHECK(values(DataSource(data_key(1, "lell"), DataType::int32, 4), 2, 0, 5000) != whole);
}

TEST_CASE("values fill their range and look independent of their place") {
  const DataSource source(data_key(7, "x"), DataType::int32, 2);
  const auto drawn = values(source, 0, 0, 100000);
  double mean = 0;
  for (const auto value : drawn) {
    REQUIRE(value < source.range());
    mean += value;
  }
  mean /= static_cast<double>(drawn.size());
  // Uniform on 0..range-1; five standard errors.
  CHECK(std::abs(mean - source.range() / 2.0) < 5 * source.range() / std::sqrt(12.0 * 100000));
  CHECK(std::set<std::uint32_t>(drawn.begin(), drawn.end()).size() > 45000);
}

TEST_CASE("float data hold the same integers as their values") {
  const DataSource source(data_key(3, "x"), DataType::float16, 4);
  const auto data = filled(source, 1, 0, 3000);
  const auto expected = values(source, 1, 0, 3000);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    _Float16 half = 0;
    std::memcpy(&half, data.data() + 2 * i, 2);
    REQUIRE(static_cast<float>(half) == static_cast<float>(expected[i]));
  }
}

TEST_CASE("sums over all ranks stay exact in every datatype") {
  for (const auto type : kTypes) {
    for (const int ranks : {1, 2, 7, 64}) {
      const DataSource source(0, type, ranks);
      const double largest = static_cast<double>(source.range() - 1) * ranks;
      const double exact = type == DataType::bfloat16  ? 256
                           : type == DataType::float16 ? 2048
                           : type == DataType::float32 ? 16777216
                                                       : 1073741824;
      INFO(name_of(type) << " over " << ranks);
      CHECK(source.range() >= 2);
      CHECK(largest <= exact);
    }
  }
  CHECK(DataSource(0, DataType::bfloat16, 300).range() == 0);
}

TEST_CASE("verification accepts what a rank put in and finds any single wrong byte", "[a-03]") {
  const auto type = GENERATE(DataType::float32, DataType::float64, DataType::float16,
                             DataType::bfloat16, DataType::int32);
  const DataSource source(data_key(5, "v"), type, 3);
  const std::size_t count = 2500;
  auto data = filled(source, 1, 100, count);
  const std::vector<ExpectedPart> parts{{0, count, 100, 1, 1, -1}};
  CHECK(verify(source, data.data(), parts).wrong == 0);
  CHECK(verify(source, data.data(), parts).checked == count);
  for (const std::size_t at : {std::size_t{0}, data.size() / 2 + 1, data.size() - 1}) {
    data[at] ^= std::byte{1};
    const DataVerdict verdict = verify(source, data.data(), parts);
    CHECK(verdict.wrong == 1);
    CHECK(verdict.first_wrong.find(fmt::format("element {} is ", at / element_bytes(type))) == 0);
    data[at] ^= std::byte{1};
  }
}

TEST_CASE("verification knows sums, with a rank left out") {
  const DataSource source(data_key(9, "s"), DataType::float32, 4);
  const std::size_t count = 1500;
  std::vector<float> sum(count, 0);
  for (const int rank : {0, 1, 3}) {
    const auto part = values(source, rank, 0, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += static_cast<float>(part[i]);
  }
  CHECK(verify(source, sum.data(), {{0, count, 0, 0, 3, 2}}).wrong == 0);
  CHECK(verify(source, sum.data(), {{0, count, 0, 0, 3, -1}}).wrong > count * 9 / 10);
  CHECK(verify(source, sum.data(), {{0, count, 0, 0, 2, -1}}).wrong > count * 9 / 10);
}

TEST_CASE("a poisoned buffer never passes") {
  for (const auto type : kTypes) {
    const DataSource source(data_key(1, "p"), type, 2);
    std::vector<std::byte> data(1000 * element_bytes(type));
    poison(data.data(), data.size());
    CHECK(verify(source, data.data(), {{0, 1000, 0, 0, 1, -1}}).wrong == 1000);
  }
}
