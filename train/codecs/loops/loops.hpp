#pragma once
// What the loops of this folder share; nobody else includes it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dynamiccl {

// As in sum.cpp: the same loop compiled twice, for the machine's wide vectors and for any machine.
// Contraction of products and sums is off for these files, so that both round alike.
#if defined(__x86_64__)
#define DYN_WIDE_CODEC __attribute__((target("avx2,f16c")))
inline const bool kWideCodec = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
#define DYN_WIDE_CODEC
inline const bool kWideCodec = true;
#endif
#define DYN_LOOP __attribute__((always_inline)) inline

template <auto kLoop, class... A>
DYN_WIDE_CODEC auto run_wide_loop(A... arguments) {
  return kLoop(arguments...);
}
template <auto kLoop, class... A>
auto run_loop(A... arguments) {
  return kWideCodec ? run_wide_loop<kLoop>(arguments...) : kLoop(arguments...);
}

constexpr std::size_t kNumberBytes = sizeof(float);  ///< bytes of a float or a place in a frame
constexpr std::uint32_t kSignBit = 0x80000000U;
constexpr std::size_t kSumLanes = 16;
/// Sums of so many are kept in fp32 lanes before they go into a double.
constexpr std::size_t kSumChunk = 4096;

template <class T>
DYN_LOOP T load_as(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
DYN_LOOP void store_as(std::uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
DYN_LOOP std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
DYN_LOOP float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Of each lane, then of all: the same order on every machine.
template <class F>
DYN_LOOP double sum_in_lanes(const float* values, std::size_t count, F&& term) {
  double sum = 0;
  for (std::size_t at = 0; at < count; at += kSumChunk) {
    const std::size_t end = std::min(at + kSumChunk, count);
    std::array<float, kSumLanes> lanes{};
    std::size_t i = at;
    for (; i + kSumLanes <= end; i += kSumLanes)
      for (std::size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += term(values[i + lane]);
    for (; i < end; ++i) lanes[0] += term(values[i]);
    for (const float lane : lanes) sum += lane;
  }
  return sum;
}
DYN_LOOP double squares_loop(const float* values, std::size_t count) {
  return sum_in_lanes(values, count, [](float v) { return v * v; });
}
DYN_LOOP float largest_loop(const float* values, std::size_t count) {
  std::array<float, kSumLanes> lanes{};
  std::size_t i = 0;
  const auto take = [](float& most, float value) {
    const float magnitude = std::fabs(value);
    most = magnitude > most ? magnitude : most;
  };
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) take(lanes[lane], values[i + lane]);
  for (; i < count; ++i) take(lanes[0], values[i]);
  return *std::max_element(lanes.begin(), lanes.end());
}
/// Euclidean norm.
inline double norm(const float* values, std::size_t count) {
  return std::sqrt(run_loop<squares_loop>(values, count));
}

}  // namespace dynamiccl
