#include "workers/data/data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/vocabulary/error.hpp"
#include "workers/data/data_hash.hpp"

namespace dynamiccl {
namespace {

// Inside a block the values are a 32-bit hash of the lane, which compilers turn into vector code.
constexpr std::size_t kBlock = kDataBlock;

#if defined(__x86_64__)
#define DYN_WIDE __attribute__((target("avx2")))
const bool kWide = __builtin_cpu_supports("avx2");
#else
#define DYN_WIDE
const bool kWide = true;
#endif

__attribute__((always_inline)) inline void add_lanes(std::uint32_t* sums, std::uint32_t key,
                                                     std::uint32_t lane, std::size_t count,
                                                     std::uint32_t range) {
  for (std::size_t i = 0; i < count; ++i)
    sums[i] += lane_value(key, lane + static_cast<std::uint32_t>(i), range);
}
DYN_WIDE void add_lanes_wide(std::uint32_t* sums, std::uint32_t key, std::uint32_t lane,
                             std::size_t count, std::uint32_t range) {
  add_lanes(sums, key, lane, count, range);
}

// An integer that float16 or bfloat16 holds exactly has the same digits as its float32.
struct Half {
  std::uint16_t bits;
  explicit Half(std::uint32_t value) {
    const auto wide = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(value)));
    bits = static_cast<std::uint16_t>(value == 0 ? 0U : (wide >> 13) - 0x1C000U);
  }
};
struct Brain {
  std::uint16_t bits;
  explicit Brain(std::uint32_t value)
      : bits(static_cast<std::uint16_t>(
            std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(value))) >> 16)) {}
};
template <class T>
struct Number {
  T value;
  explicit Number(std::uint32_t v) : value(static_cast<T>(static_cast<int>(v))) {}
};

template <class T>
__attribute__((always_inline)) inline void encode_loop(void* out, const std::uint32_t* values,
                                                       std::size_t count) {
  auto* o = static_cast<T*>(out);
  for (std::size_t i = 0; i < count; ++i) o[i] = T(values[i]);
}
template <class T>
DYN_WIDE void encode_wide(void* out, const std::uint32_t* values, std::size_t count) {
  encode_loop<T>(out, values, count);
}
template <class T>
void encode_as(void* out, const std::uint32_t* values, std::size_t count) {
  if (kWide) {
    encode_wide<T>(out, values, count);
  } else {
    encode_loop<T>(out, values, count);
  }
}

void encode(void* out, const std::uint32_t* values, std::size_t count, DataType type) {
  switch (type) {
    case DataType::float32:
      return encode_as<Number<float>>(out, values, count);
    case DataType::float64:
      return encode_as<Number<double>>(out, values, count);
    case DataType::int32:
      return encode_as<Number<std::int32_t>>(out, values, count);
    case DataType::float16:
      return encode_as<Half>(out, values, count);
    case DataType::bfloat16:
      return encode_as<Brain>(out, values, count);
  }
}

// Largest n so that 0..n are all exact.
std::uint32_t largest_exact(DataType type) {
  switch (type) {
    case DataType::bfloat16:
      return 1U << 8;
    case DataType::float16:
      return 1U << 11;
    case DataType::float32:
      return 1U << 24;
    case DataType::float64:
    case DataType::int32:
      return 1U << 30;
  }
  return 0;
}

std::string describe(const std::byte* at, DataType type) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case DataType::float32:
      return fmt::format("{}", as(float{}));
    case DataType::float64:
      return fmt::format("{}", as(double{}));
    case DataType::int32:
      return fmt::format("{}", as(std::int32_t{}));
    case DataType::float16:
      return fmt::format("{}", static_cast<float>(as(_Float16{})));
    case DataType::bfloat16:
      return fmt::format(
          "{}", std::bit_cast<float>(static_cast<std::uint32_t>(as(std::uint16_t{})) << 16));
  }
  return "?";
}

}  // namespace

DataSource::DataSource(std::uint64_t key, DataType type, int ranks, ReduceOp op)
    : key_(key),
      type_(type),
      ranks_(ranks),
      // Factors are ones and twos.
      range_(op == ReduceOp::prod
                 ? 2U
                 : std::min<std::uint32_t>(65535U, largest_exact(type) / static_cast<std::uint32_t>(
                                                                             std::max(ranks, 1)))),
      op_(op) {}

void DataSource::add_values(std::uint32_t* sums, int rank, std::uint64_t first,
                            std::size_t count) const {
  const std::uint64_t own_key = rank_key(key_, rank);
  while (count > 0) {
    const std::uint64_t block = first / kBlock;
    const std::size_t lane = first % kBlock;
    const std::size_t part = std::min(count, kBlock - lane);
    const auto key = static_cast<std::uint32_t>(splitmix64_of(own_key ^ block));
    const auto lane32 = static_cast<std::uint32_t>(lane);
    if (kWide) {
      add_lanes_wide(sums, key, lane32, part, range_);
    } else {
      add_lanes(sums, key, lane32, part, range_);
    }
    sums += part;
    first += part;
    count -= part;
  }
}

void DataSource::fill(void* out, int rank, std::uint64_t first, std::size_t count) const {
  std::array<std::uint32_t, kBlock> values{};
  auto* at = static_cast<std::byte*>(out);
  while (count > 0) {
    const std::size_t part = std::min(count, kBlock);
    values.fill(least());
    add_values(values.data(), rank, first, part);
    encode(at, values.data(), part, type_);
    at += part * element_bytes(type_);
    first += part;
    count -= part;
  }
}

std::uint64_t data_key(std::uint64_t seed, const std::string& cell_id) {
  std::uint64_t key = splitmix64_of(seed);
  for (const char c : cell_id) key = splitmix64_of(key ^ static_cast<unsigned char>(c));
  return key;
}

DataVerdict& DataVerdict::operator+=(const DataVerdict& other) {
  checked += other.checked;
  wrong += other.wrong;
  if (first_wrong.empty()) first_wrong = other.first_wrong;
  return *this;
}

namespace {

void combine(std::uint32_t* results, const std::uint32_t* values, std::size_t count, ReduceOp op) {
  for (std::size_t i = 0; i < count; ++i) {
    if (op == ReduceOp::max) results[i] = std::max(results[i], values[i]);
    if (op == ReduceOp::min) results[i] = std::min(results[i], values[i]);
    if (op == ReduceOp::prod) results[i] *= values[i];
  }
}

/// What `count` elements of a part must be, from element `done` on; at most a block.
void expect(const DataSource& source, const ExpectedPart& part, std::size_t done, std::size_t count,
            std::uint32_t* results) {
  std::fill_n(results, count, source.least());
  std::array<std::uint32_t, kBlock> values{};
  bool first = true;
  for (int rank = part.first_rank; rank <= part.last_rank; ++rank) {
    if (rank == part.skipped_rank) continue;
    if (first || source.op() == ReduceOp::sum) {
      source.add_values(results, rank, part.first + done, count);
    } else {
      std::fill_n(values.data(), count, source.least());
      source.add_values(values.data(), rank, part.first + done, count);
      combine(results, values.data(), count, source.op());
    }
    first = false;
  }
}

}  // namespace

std::string describe_wrong(const DataSource& source, const ExpectedPart& part, std::size_t index,
                           const void* got) {
  std::uint32_t value = 0;
  expect(source, part, index, 1, &value);
  std::array<std::byte, 8> expected{};
  encode(expected.data(), &value, 1, source.type());
  return fmt::format("element {} is {} but must be {}", part.offset + index,
                     describe(static_cast<const std::byte*>(got), source.type()),
                     describe(expected.data(), source.type()));
}

namespace {

DataVerdict verify_part(const DataSource& source, const std::byte* out, const ExpectedPart& part) {
  const std::size_t width = element_bytes(source.type());
  std::array<std::uint32_t, kBlock> results{};
  std::array<std::byte, kBlock * 8> expected{};
  DataVerdict verdict;
  for (std::size_t done = 0; done < part.count; done += kBlock) {
    const std::size_t count = std::min(kBlock, part.count - done);
    expect(source, part, done, count, results.data());
    encode(expected.data(), results.data(), count, source.type());
    const std::byte* got = out + (part.offset + done) * width;
    verdict.checked += count;
    if (std::memcmp(got, expected.data(), count * width) == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(got + i * width, expected.data() + i * width, width) == 0) continue;
      if (verdict.wrong++ == 0)
        verdict.first_wrong = describe_wrong(source, part, done + i, got + i * width);
    }
  }
  return verdict;
}

}  // namespace

DataVerdict verify(const DataSource& source, const void* out,
                   const std::vector<ExpectedPart>& parts) {
  DataVerdict verdict;
  for (const auto& part : parts)
    verdict += verify_part(source, static_cast<const std::byte*>(out), part);
  return verdict;
}

void poison(void* out, std::size_t bytes) {
  // All ones is a NaN or -1; inputs and sums are never negative.
  std::memset(out, 0xFF, bytes);
}

}  // namespace dynamiccl
