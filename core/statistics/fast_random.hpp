#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/vocabulary/splitmix64.hpp"

namespace dynamiccl {

/// xoshiro256++ (Blackman & Vigna, 2019), seeded by splitmix64: the standard library's generators
/// and distributions cost more than a simulated step, and give other numbers on other systems.
class FastRandom {
 public:
  using result_type = std::uint64_t;
  explicit FastRandom(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = splitmix64_next(seed);
  }
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  /// [0, 1)
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// [0, count), count > 0
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }
  bool chance(double probability) { return uniform() < probability; }
  /// Standard normal (Marsaglia's polar method).
  double normal() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    double u = 0;
    double v = 0;
    double s = 0;
    do {
      u = 2 * uniform() - 1;
      v = 2 * uniform() - 1;
      s = u * u + v * v;
    } while (s >= 1 || s == 0);
    const double factor = std::sqrt(-2 * std::log(s) / s);
    spare_ = v * factor;
    has_spare_ = true;
    return u * factor;
  }

 private:
  std::uint64_t state_[4];
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace dynamiccl
