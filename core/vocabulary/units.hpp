#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace dynamiccl {

/// A count of bytes. Never implicitly made from a bare number.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t count) : count_(count) {}
  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }
  auto operator<=>(const Bytes&) const = default;

 private:
  std::uint64_t count_ = 0;
};

/// A duration in microseconds, the one unit of time inside the program and in records (`_us` at
/// edges).
class Micros {
 public:
  constexpr Micros() = default;
  constexpr explicit Micros(double count) : count_(count) {}
  [[nodiscard]] constexpr double count() const { return count_; }
  [[nodiscard]] constexpr double seconds() const { return count_ * 1e-6; }
  auto operator<=>(const Micros&) const = default;

 private:
  double count_ = 0.0;
};

constexpr Micros operator+(Micros a, Micros b) { return Micros(a.count() + b.count()); }
constexpr Micros operator-(Micros a, Micros b) { return Micros(a.count() - b.count()); }

/// Parses "8", "4B", "64KiB", "1 MiB", "1GiB" (binary) and "64KB", "1MB", "1GB" (decimal).
/// A bare suffix K, M, G is binary, as in nccl-tests.
/// @throws Error(input) when the text is no size or does not fit in 64 bits
Bytes parse_bytes(std::string_view text);

/// Shortest exact binary form: "4 B", "64 KiB", "1 GiB"; a size that is no multiple stays in bytes.
std::string format_bytes(Bytes size);

/// Three significant digits with the fitting unit: "1.23 us", "45.6 ms", "7.89 s".
std::string format_micros(Micros time);

/// Parses "250us", "500ms", "2s", "3m", "1h"; a bare number is seconds.
/// @throws Error(input) when the text is no duration
Micros parse_duration(std::string_view text);

}  // namespace dynamiccl
