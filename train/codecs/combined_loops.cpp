// Frames of codecs that leave values out and shorten what is left.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "train/codecs/codec_loops.hpp"
#include "train/codecs/loops.hpp"
#include "train/spec/compression.hpp"

namespace dynamiccl {
namespace {

std::size_t sign_bytes(std::size_t kept) { return (kept + 7) / 8; }

/// Places, one behind the other, and a bit for each that is negative.
void store_signed_places(const float* values, const std::uint32_t* places, std::size_t kept,
                         std::uint8_t* to) {
  std::memcpy(to, places, kept * kNumberBytes);
  std::uint8_t* signs = to + kept * kNumberBytes;
  std::fill_n(signs, sign_bytes(kept), std::uint8_t{0});
  for (std::size_t i = 0; i < kept; ++i)
    if (std::signbit(values[places[i]]))
      signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | (1U << (i % 8)));
}

std::vector<std::uint32_t> largest_places(const float* values, std::size_t count,
                                          std::size_t kept) {
  static thread_local std::vector<std::uint8_t> frame;
  frame.resize(2 * kNumberBytes * kept);
  encode_largest(values, count, kept, frame.data());
  std::vector<std::uint32_t> places(kept);
  std::memcpy(places.data(), frame.data(), kept * kNumberBytes);
  return places;
}

std::uint32_t checked_place(const std::uint8_t* places, std::size_t i, std::size_t count) {
  const auto place = load_as<std::uint32_t>(places + kNumberBytes * i);
  if (place >= count)
    throw Error(ErrorKind::data, "a sparse gradient names a place beyond its end");
  return place;
}

// 3LC: five digits of base 3 in a byte; bytes from kRunBase on are runs of two or more kZeros.
constexpr std::size_t kDigits = 5;
constexpr std::uint8_t kZeros = 121;     // five digits of 1, which stands for 0
constexpr std::uint8_t kRunBase = 243;   // 3^5: no digits say it
constexpr std::size_t kLongestRun = 14;  // 255 - 243 + 2

/// What five digits of the values from `at` on are, -1, 0 and 1 as 0, 1 and 2.
std::uint8_t five_digits(const float* values, std::size_t count, std::size_t at, float least) {
  unsigned byte = 0;
  for (std::size_t i = at; i < at + kDigits; ++i) {
    unsigned digit = 1;
    if (i < count && std::fabs(values[i]) >= least && least > 0)
      digit = std::signbit(values[i]) ? 0 : 2;
    byte = 3 * byte + digit;
  }
  return static_cast<std::uint8_t>(byte);
}

void add_digits(unsigned byte, std::size_t at, std::size_t count, float size, float* sum) {
  for (std::size_t i = kDigits; i-- > 0; byte /= 3)
    if (at + i < count && byte % 3 != 1) sum[at + i] += byte % 3 == 2 ? size : -size;
}

}  // namespace

std::size_t encode_sparse_ternary(const float* values, std::size_t count, std::size_t kept,
                                  std::uint8_t* frame) {
  const auto places = largest_places(values, count, kept);
  double sum = 0;
  for (const std::uint32_t place : places) sum += std::fabs(values[place]);
  store_as(frame, static_cast<float>(sum / static_cast<double>(kept)));
  store_signed_places(values, places.data(), kept, frame + kNumberBytes);
  return kNumberBytes + kept * kNumberBytes + sign_bytes(kept);
}

void add_signed_places(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                       float* sum) {
  const float size = scale * load_as<float>(frame);
  const std::uint8_t* places = frame + kNumberBytes;
  const std::uint8_t* signs = places + kept * kNumberBytes;
  for (std::size_t i = 0; i < kept; ++i) {
    const bool negative = ((signs[i / 8] >> (i % 8)) & 1) != 0;
    sum[checked_place(places, i, count)] += negative ? -size : size;
  }
}

std::size_t encode_sparse_binary(const float* values, std::size_t count, std::size_t kept,
                                 std::uint8_t* frame) {
  static thread_local std::vector<float> side;
  side.resize(count);
  std::vector<std::uint32_t> best;
  double best_mean = 0;
  for (const float sign : {1.0F, -1.0F}) {
    for (std::size_t i = 0; i < count; ++i) side[i] = std::max(sign * values[i], 0.0F);
    auto places = largest_places(side.data(), count, kept);
    double sum = 0;
    for (const std::uint32_t place : places) sum += side[place];
    const double mean = sum / static_cast<double>(kept);
    if (!best.empty() && mean <= std::fabs(best_mean)) continue;
    best = std::move(places);
    best_mean = sign * mean;
  }
  store_as(frame, static_cast<float>(best_mean));
  std::memcpy(frame + kNumberBytes, best.data(), kept * kNumberBytes);
  return kNumberBytes * (1 + kept);
}

void add_places(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                float* sum) {
  const float size = scale * load_as<float>(frame);
  for (std::size_t i = 0; i < kept; ++i) sum[checked_place(frame + kNumberBytes, i, count)] += size;
}

std::size_t encode_three_levels(const float* values, std::size_t count, std::uint8_t* frame) {
  const float most = largest_loop(values, count);
  store_as(frame + kNumberBytes, most);
  std::uint8_t* bytes = frame + 2 * kNumberBytes;
  std::size_t written = 0;
  std::size_t zeros = 0;
  const auto end_run = [&] {
    if (zeros == 1) bytes[written++] = kZeros;
    if (zeros > 1) bytes[written++] = static_cast<std::uint8_t>(kRunBase + zeros - 2);
    zeros = 0;
  };
  for (std::size_t at = 0; at < count; at += kDigits) {
    const std::uint8_t byte = five_digits(values, count, at, most / 2);
    if (byte == kZeros) {
      if (++zeros == kLongestRun) end_run();
      continue;
    }
    end_run();
    bytes[written++] = byte;
  }
  end_run();
  store_as(frame, static_cast<std::uint32_t>(written));
  return 2 * kNumberBytes + written;
}

void add_three_levels(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  const std::size_t written = load_as<std::uint32_t>(frame);
  const float size = scale * load_as<float>(frame + kNumberBytes);
  std::size_t at = 0;
  for (std::size_t i = 0; i < written; ++i) {
    const std::uint8_t byte = frame[2 * kNumberBytes + i];
    if (byte >= kRunBase) {
      at += kDigits * (byte - kRunBase + std::size_t{2});
      continue;
    }
    add_digits(byte, at, count, size, sum);
    at += kDigits;
  }
}

std::size_t encode_binned(const float* values, const float* residual, std::size_t count,
                          std::uint8_t* frame) {
  std::vector<std::uint32_t> places;
  double sizes = 0;
  std::size_t bins = 0;
  for (std::size_t at = 0; at < count; at += kAdaBin, ++bins) {
    const std::size_t end = std::min(at + kAdaBin, count);
    const float most = largest_loop(values + at, end - at);
    sizes += most;
    if (most <= 0) continue;
    for (std::size_t i = at; i < end; ++i)
      if (std::fabs(2 * values[i] - residual[i]) >= most)
        places.push_back(static_cast<std::uint32_t>(i));
  }
  store_as(frame, static_cast<std::uint32_t>(places.size()));
  store_as(frame + kNumberBytes,
           static_cast<float>(sizes / static_cast<double>(std::max<std::size_t>(bins, 1))));
  store_signed_places(values, places.data(), places.size(), frame + 2 * kNumberBytes);
  return (2 + places.size()) * kNumberBytes + sign_bytes(places.size());
}

}  // namespace dynamiccl
