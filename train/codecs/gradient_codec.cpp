#include "train/codecs/gradient_codec.hpp"

#include <algorithm>
#include <cmath>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

std::uint64_t step_key(std::uint64_t seed, std::uint64_t step) {
  return splitmix64_of(splitmix64_of(seed) + step);
}

std::uint64_t worker_seed(std::uint64_t seed, int worker) {
  return splitmix64_of(seed + 1 + static_cast<std::uint64_t>(worker));
}

std::uint32_t shared_key(std::uint64_t seed, std::uint64_t step, const CodedPart& part) {
  return static_cast<std::uint32_t>(splitmix64_of(step_key(seed, step) + part.offset) >> 32);
}

GradientCodec::GradientCodec(const CodecSeat& seat)
    : settings_(seat.plan.codec),
      seed_(seat.plan.seed),
      worker_(seat.worker),
      workers_(seat.workers),
      elements_(seat.plan.elements()) {
  if (settings_.feedback) remember(residual_);
}

void GradientCodec::remember(std::vector<float>& memory) {
  if (worker_ == kReader) return;
  memory.assign(elements_, 0.0F);
  memories_.push_back(&memory);
}

void GradientCodec::restart() {
  step_ = 0;
  begun_ = false;
  forget();
}

void GradientCodec::forget() {
  for (auto* memory : memories_) std::fill(memory->begin(), memory->end(), 0.0F);
  lose_memory();
}

void GradientCodec::begin_step() {
  if (begun_) ++step_;
  begun_ = true;
  step_begins();
}

std::size_t GradientCodec::state_bytes() const {
  return (memories_.size() * elements_ + other_floats()) * sizeof(float);
}

std::uint64_t GradientCodec::boundless() const {
  std::ptrdiff_t found = 0;
  for (const auto* values : memories_)
    found += std::count_if(values->begin(), values->end(),
                           [](float value) { return !std::isfinite(value); });
  return static_cast<std::uint64_t>(found);
}

std::uint32_t GradientCodec::shared_key(const CodedPart& part, std::uint64_t step) const {
  return dynamiccl::shared_key(seed_, step, part);
}

std::uint32_t GradientCodec::own_key(const CodedPart& part) const {
  return dynamiccl::shared_key(worker_seed(seed_, worker_), step_, part);
}

void GradientCodec::compensate(const CodedPart& part, float* values) {
  const float* kept_back = residual(part);
  if (kept_back == nullptr) return;
  for (std::size_t i = 0; i < part.count; ++i) values[i] += kept_back[i];
}

void GradientCodec::keep(const CodedPart& part, const float* values, const std::uint8_t* frame) {
  float* kept_back = residual(part);
  if (kept_back == nullptr) return;
  std::copy_n(values, part.count, kept_back);
  add(part, step_, frame, -1, kept_back);
}

std::size_t GradientCodec::encode(const CodedPart& part, float* values, std::uint8_t* frame) {
  compensate(part, values);
  const std::size_t bytes = encode_values(part, values, frame);
  keep(part, values, frame);
  return bytes;
}

std::size_t GradientCodec::encode_values(const CodedPart&, const float*, std::uint8_t*) {
  DYN_ASSERT(false, "the codec has no frames");
}

void GradientCodec::add(const CodedPart&, std::uint64_t, const std::uint8_t*, float, float*) const {
  DYN_ASSERT(false, "the codec has no frames");
}

std::size_t GradientCodec::frame_room(const CodedPart& part, std::uint64_t step) const {
  return static_cast<std::size_t>(codec_bytes(settings_, part.count, part.rows, step).value_or(0));
}

void GradientCodec::sum_frames(const CodedPart& part, std::uint64_t step,
                               const std::vector<const std::uint8_t*>& frames, float* sum) const {
  std::fill_n(sum, part.count, 0.0F);
  for (const std::uint8_t* frame : frames) add(part, step, frame, 1, sum);
  take_vote(sum, part.count, static_cast<int>(frames.size()));
}

}  // namespace dynamiccl
