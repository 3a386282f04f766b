#include "train/codecs/message_codec.hpp"

#include <fmt/format.h>

#include <cstring>

#include "core/vocabulary/error.hpp"
#include "train/codecs/largest_codec.hpp"
#include "train/step/worker_step.hpp"

namespace dynamiccl {
namespace {

std::vector<std::vector<CodedPart>> parts_of(const ExchangePlan& plan) {
  std::vector<std::vector<CodedPart>> parts;
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) parts.push_back(coded_parts(plan, i));
  return parts;
}

ExchangePlan seeded(const ExchangePlan& plan, bool last) {
  ExchangePlan own = plan;
  if (last && planted_fault("other-seed")) ++own.seed;
  return own;
}

}  // namespace

MessageCodec::MessageCodec(const ExchangePlan& plan, int worker, int workers)
    : last_(worker == workers - 1),
      plan_(seeded(plan, last_)),
      codec_(make_codec({plan_, worker, workers})),
      parts_(parts_of(plan_)) {}

void MessageCodec::begin_step() {
  if (last_ && planted_fault("drop-residual")) codec_->forget();
  codec_->begin_step();
  ++coding_.steps;
}

std::size_t MessageCodec::frame_limit(std::size_t piece) const {
  std::size_t limit = 0;
  for (const auto& part : parts_[piece]) limit += codec_->frame_room(part, codec_->step());
  return limit;
}

std::size_t MessageCodec::encode(std::size_t piece, float* gradients, std::uint8_t* frames) {
  std::size_t bytes = 0;
  timed(&CodingFigures::encode_us, [&] {
    for (const auto& part : parts_[piece])
      bytes += codec_->encode(part, gradients + part.offset, frames + bytes);
  });
  if (last_ && planted_fault("shift-place")) shift_places(piece, frames);
  return bytes;
}

void MessageCodec::count(std::size_t piece, std::size_t bytes) {
  coding_.message_bytes += bytes;
  coding_.plain_bytes += plan_.pieces[piece].count * sizeof(float);
  const auto formula = message_bytes(plan_, piece, codec_->step());
  coding_.formula_bytes += formula.value_or(bytes);
  coding_.by_formula &= formula.has_value();
}

std::size_t MessageCodec::encode_all(float* gradients, std::vector<std::uint8_t>& frames) {
  std::size_t limit = 0;
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i) limit += frame_limit(i);
  frames.resize(limit);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i) {
    const std::size_t some = encode(i, gradients, frames.data() + bytes);
    count(i, some);
    bytes += some;
  }
  return bytes;
}

/// A wrong place in what this worker sends.
void MessageCodec::shift_places(std::size_t piece, std::uint8_t* frames) {
  // Of frames that begin with their places.
  if (dynamic_cast<const LargestCodec*>(codec_.get()) == nullptr) return;
  for (const auto& part : parts_[piece]) {
    const std::size_t kept = codec_->kept(part, codec_->step());
    for (std::size_t i = 0; i < kept; ++i) {
      std::uint32_t place = 0;
      std::memcpy(&place, frames + sizeof place * i, sizeof place);
      place = (place + 1) % static_cast<std::uint32_t>(part.count);
      std::memcpy(frames + sizeof place * i, &place, sizeof place);
    }
    frames += codec_->frame_bytes(part, codec_->step(), frames);
  }
}

MessageDecoder::MessageDecoder(const ExchangePlan& plan)
    : plan_(plan), codec_(make_codec({plan, kReader, 1})), parts_(parts_of(plan)) {}

std::size_t MessageDecoder::frame_limit(std::size_t piece, std::uint64_t step) const {
  std::size_t limit = 0;
  for (const auto& part : parts_[piece]) limit += codec_->frame_room(part, step);
  return limit;
}

std::size_t MessageDecoder::frame_limit(std::uint64_t step) const {
  std::size_t limit = 0;
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i) limit += frame_limit(i, step);
  return limit;
}

std::size_t MessageDecoder::add(std::size_t piece, std::uint64_t step, const std::uint8_t* frames,
                                std::size_t bytes, float* sum) const {
  std::size_t at = 0;
  const std::size_t first = plan_.pieces[piece].offset;
  for (const auto& part : parts_[piece]) {
    constexpr std::size_t kLeastFrame = 4;  // what says how long a frame is that its values make so
    const bool told = at + kLeastFrame <= bytes || codec_row(plan_.codec.codec).alike;
    const std::size_t frame = told ? codec_->frame_bytes(part, step, frames + at) : 0;
    if (!told || at + frame > bytes)
      throw Error(ErrorKind::data, fmt::format("a message of {} bytes ends within a gradient that "
                                               "{} encoded; its ranks are of other versions",
                                               bytes, name_of(plan_.codec.codec)));
    codec_->add(part, step, frames + at, 1, sum + (part.offset - first));
    at += frame;
  }
  return at;
}

void MessageDecoder::add_all(std::uint64_t step, const std::uint8_t* frames, std::size_t bytes,
                             float* sum) const {
  std::size_t at = 0;
  for (std::size_t i = 0; i < plan_.pieces.size(); ++i)
    at += add(i, step, frames + at, bytes - at, sum + plan_.pieces[i].offset);
}

void MessageDecoder::conclude(std::size_t piece, int workers, float* sum) const {
  codec_->take_vote(sum, plan_.pieces[piece].count, workers);
}

}  // namespace dynamiccl
