#include "train/codecs/worker_codec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/vocabulary/error.hpp"
#include "train/codecs/codec_loops.hpp"

namespace dynamiccl {
namespace {

/// Adds `scale` (1 or -1) times what a 16-bit frame says.
void add_16_bit(Codec codec, const std::uint8_t* frame, std::size_t count, float scale,
                float* sum) {
  std::array<float, 1024> decoded;
  for (std::size_t at = 0; at < count; at += decoded.size()) {
    const std::size_t some = std::min(decoded.size(), count - at);
    if (codec == Codec::fp16) {
      decode_float16(frame + 2 * at, some, decoded.data());
    } else {
      decode_bfloat16(frame + 2 * at, some, decoded.data());
    }
    for (std::size_t i = 0; i < some; ++i) sum[at + i] += scale * decoded[i];
  }
}

/// A frame of QSGD with bits by significance begins with them.
constexpr std::size_t kAdaptiveHead = 4;

/// @throws Error(data) for bits that no worker chooses
int told_bits(const std::uint8_t* frame) {
  const std::size_t bits = sparse_kept(frame);
  if (bits != 2 && bits != 4 && bits != 8)
    throw Error(ErrorKind::data, "a gradient's values have neither 2, 4 nor 8 bits");
  return static_cast<int>(bits);
}

std::size_t levels_bytes(std::size_t count, int bits) {
  return (count * static_cast<std::size_t>(bits) + 7) / 8 +
         sizeof(float) * ((count + kQsgdBucket - 1) / kQsgdBucket);
}

}  // namespace

std::uint64_t step_key(std::uint64_t seed, std::uint64_t step) {
  return splitmix64_of(splitmix64_of(seed) + step);
}

std::uint64_t worker_seed(std::uint64_t seed, int worker) {
  return splitmix64_of(seed + 1 + static_cast<std::uint64_t>(worker));
}

std::uint32_t shared_key(std::uint64_t seed, std::uint64_t step, const CodedPart& part) {
  return static_cast<std::uint32_t>(splitmix64_of(step_key(seed, step) + part.offset) >> 32);
}

DataType reduced_type(Codec codec) {
  if (codec == Codec::fp16) return DataType::float16;
  return codec == Codec::bf16 ? DataType::bfloat16 : DataType::float32;
}

WorkerCodec::WorkerCodec(const ExchangePlan& plan, int worker, int workers)
    : settings_(plan.codec), seed_(plan.seed), worker_(worker), workers_(workers) {
  const std::size_t elements = plan.elements();
  if (settings_.feedback) residual_.resize(elements);
  if (settings_.codec == Codec::dgc) momentum_.resize(elements);
  if (settings_.codec == Codec::powersgd) right_.resize(plan.counts.size());
  if (settings_.codec == Codec::diana) {
    shift_.resize(elements);
    all_shifts_.resize(elements);
  }
  restart();
}

void WorkerCodec::restart() {
  step_ = 0;
  begun_ = false;
  forget();
}

void WorkerCodec::forget() {
  std::fill(residual_.begin(), residual_.end(), 0.0F);
  std::fill(momentum_.begin(), momentum_.end(), 0.0F);
  std::fill(shift_.begin(), shift_.end(), 0.0F);
  std::fill(all_shifts_.begin(), all_shifts_.end(), 0.0F);
  squares_ = mean_square_ = 0;
  squared_ = 0;
}

void WorkerCodec::begin_step() {
  if (begun_) ++step_;
  begun_ = true;
  mean_square_ = squared_ > 0 ? squares_ / static_cast<double>(squared_) : 0;
  squares_ = 0;
  squared_ = 0;
}

std::size_t WorkerCodec::state_bytes() const {
  std::size_t elements = residual_.size() + momentum_.size() + shift_.size() + all_shifts_.size();
  for (const auto& [offset, places] : found_) elements += places.size();
  for (const auto& factor : right_) elements += factor.size();
  return elements * sizeof(float);
}

std::uint64_t WorkerCodec::boundless() const {
  std::ptrdiff_t found = 0;
  for (const auto* values : {&residual_, &momentum_, &shift_, &all_shifts_})
    found += std::count_if(values->begin(), values->end(),
                           [](float value) { return !std::isfinite(value); });
  return static_cast<std::uint64_t>(found);
}

std::size_t WorkerCodec::kept(const CodedPart& part) const {
  return kept_values(density_at(settings_, step_), part.count);
}

std::uint32_t WorkerCodec::key(const CodedPart& part, bool own) const {
  const std::uint64_t seed = own ? worker_seed(seed_, worker_) : seed_;
  return shared_key(seed, step_, part);
}

bool WorkerCodec::is_factored(const CodedPart& part) const {
  return dynamiccl::is_factored(settings_.rank, part.rows, part.count);
}

std::size_t WorkerCodec::frame_limit(const CodedPart& part) const {
  return frame_room(settings_, part, step_);
}

/// Momentum correction: what is accumulated is the velocity, not the gradient.
void WorkerCodec::accumulate_momentum(const CodedPart& part, float* values) {
  float factor = 1;
  if (settings_.clip > 0) {
    const double most = settings_.clip / std::sqrt(static_cast<double>(workers_));
    const double length = norm(values, part.count);
    if (length > most) factor = static_cast<float>(most / length);
  }
  const auto momentum = static_cast<float>(settings_.momentum);
  float* velocity = &momentum_[part.offset];
  float* waiting = &residual_[part.offset];
  for (std::size_t i = 0; i < part.count; ++i) {
    velocity[i] = momentum * velocity[i] + factor * values[i];
    waiting[i] += velocity[i];
    values[i] = waiting[i];
  }
}

void WorkerCodec::compensate(const CodedPart& part, float* values) {
  if (settings_.codec == Codec::dgc) return accumulate_momentum(part, values);
  if (settings_.codec == Codec::diana) {
    const float* shift = &shift_[part.offset];
    for (std::size_t i = 0; i < part.count; ++i) values[i] -= shift[i];
  }
  if (!settings_.feedback) return;
  const float* residual = &residual_[part.offset];
  for (std::size_t i = 0; i < part.count; ++i) values[i] += residual[i];
}

std::size_t WorkerCodec::encode_drawn(const CodedPart& part, const float* values,
                                      std::uint8_t* frame) const {
  const std::size_t drawn = kept(part);
  const std::uint32_t shared = key(part, /*own=*/false);
  for (std::size_t i = 0; i < drawn; ++i) {
    float value = values[drawn_place(i, drawn, part.count, shared)];
    // Without a residual the expected value is the gradient.
    if (!settings_.feedback) value *= static_cast<float>(stratum_size(i, drawn, part.count));
    std::memcpy(frame + sizeof value * i, &value, sizeof value);
  }
  return sizeof(float) * drawn;
}

std::size_t WorkerCodec::encode_values(const CodedPart& part, const float* values,
                                       std::uint8_t* frame) const {
  const std::size_t count = part.count;
  switch (settings_.codec) {
    case Codec::fp16:
      return encode_float16(values, count, frame);
    case Codec::bf16:
      return encode_bfloat16(values, count, frame);
    case Codec::int8:
      return encode_int8(values, count, frame);
    case Codec::onebit:
      return encode_onebit(values, count, frame);
    case Codec::ef_sign:
      return encode_scaled_signs(values, count, frame);
    case Codec::signsgd:
      return encode_signs(values, count, frame);
    case Codec::terngrad:
      return encode_ternary(values, count, key(part, true), frame);
    case Codec::qsgd:
    case Codec::diana:
      return encode_levels(values, count, value_bits(settings_, count), key(part, true), frame);
    case Codec::qsgd_adaptive: {
      const auto bits = static_cast<std::uint32_t>(bits_);
      std::memcpy(frame, &bits, sizeof bits);
      return sizeof bits +
             encode_levels(values, count, bits_, key(part, true), frame + sizeof bits);
    }
    case Codec::natural:
      return encode_powers(values, count, key(part, true), frame);
    case Codec::topk:
    case Codec::dgc:
    case Codec::gtopk:
      return encode_largest(values, count, kept(part), frame);
    case Codec::randomk:
      return encode_drawn(part, values, frame);
    case Codec::threshold:
      return encode_above(values, count, static_cast<float>(settings_.threshold), frame);
    case Codec::stc:
      return encode_sparse_ternary(values, count, kept(part), frame);
    case Codec::sbc:
      return encode_sparse_binary(values, count, kept(part), frame);
    case Codec::three_lc:
      return encode_three_levels(values, count, frame);
    case Codec::adacomp:
      return encode_binned(values, &residual_[part.offset], count, frame);
    case Codec::none:
    case Codec::powersgd:
    case Codec::sketch:
      break;
  }
  DYN_ASSERT(false, "the codec has no frames");
}

/// DIANA: what was decoded, in part, is known from now on.
void WorkerCodec::learn(const CodedPart& part, const std::uint8_t* frame) {
  add_frame(settings_, part, 0, frame, static_cast<float>(shift_rate_of(settings_, part.count)),
            &shift_[part.offset]);
}

void WorkerCodec::conclude(const CodedPart& part, float* sum) {
  if (settings_.codec != Codec::diana) return;
  const auto rate = static_cast<float>(shift_rate_of(settings_, part.count));
  float* known = &all_shifts_[part.offset];
  for (std::size_t i = 0; i < part.count; ++i) {
    const float difference = sum[i];
    sum[i] = known[i] + difference;
    known[i] += rate * difference;
  }
}

void WorkerCodec::conclude_merge(const CodedPart& part, const std::uint8_t* own,
                                 const std::uint8_t* merged, std::vector<PlacedValue>& dropped) {
  float* residual = &residual_[part.offset];
  keep_lost(own, merged, kept(part), residual);
  keep_dropped(dropped, merged, kept(part), residual);
}

/// Bits by significance: more for gradients whose values are larger than this worker's usually are.
void WorkerCodec::judge(const CodedPart& part, const float* values) {
  const double length = norm(values, part.count);
  const double mean = length * length / static_cast<double>(part.count);
  squares_ += length * length;
  squared_ += part.count;
  constexpr double kLess = 1.0 / 16;  // a quarter of the usual magnitude
  const bool unknown = mean_square_ <= 0 || !(mean < mean_square_);
  bits_ = unknown ? kMostBits : mean >= kLess * mean_square_ ? kMostBits / 2 : kMostBits / 4;
}

void WorkerCodec::forget_sent(const CodedPart& part, const std::uint8_t* frame) {
  for (std::size_t i = 0; i < kept(part); ++i) {
    std::uint32_t place = 0;
    std::memcpy(&place, frame + sizeof place * i, sizeof place);
    residual_[part.offset + place] = 0;
    momentum_[part.offset + place] = 0;
  }
}

void WorkerCodec::keep_residual(const CodedPart& part, const float* values,
                                const std::uint8_t* frame) {
  if (settings_.codec == Codec::dgc) return forget_sent(part, frame);
  if (settings_.codec == Codec::diana) return learn(part, frame);
  if (!settings_.feedback) return;
  float* residual = &residual_[part.offset];
  std::copy_n(values, part.count, residual);
  if (settings_.codec == Codec::fp16 || settings_.codec == Codec::bf16)
    return add_16_bit(settings_.codec, frame, part.count, -1, residual);
  if (settings_.codec == Codec::randomk) {
    const std::size_t drawn = kept(part);
    const std::uint32_t shared = key(part, false);
    for (std::size_t i = 0; i < drawn; ++i) residual[drawn_place(i, drawn, part.count, shared)] = 0;
    return;
  }
  add_frame(settings_, part, frame_kept(settings_, part, step_, frame), frame, -1, residual);
}

std::size_t WorkerCodec::encode(const CodedPart& part, float* values, std::uint8_t* frame) {
  compensate(part, values);
  if (settings_.codec == Codec::qsgd_adaptive) judge(part, values);
  const std::size_t bytes = encode_values(part, values, frame);
  keep_residual(part, values, frame);
  return bytes;
}

/// All begin with the same directions. A column that found nothing, as where a gradient was zero or
/// of a lower rank, begins anew: nothing times a matrix would be nothing for ever.
void WorkerCodec::draw_directions(const CodedPart& part, std::size_t rank,
                                  std::vector<float>& right) const {
  const std::size_t columns = part.count / part.rows;
  if (step_ == 0) right.assign(rank * columns, 0.0F);
  const std::uint32_t drawn = shared_key(seed_, step_, part);
  for (std::size_t k = 0; k < rank; ++k) {
    float* column = &right[k * columns];
    if (std::any_of(column, column + columns, [](float value) { return value != 0; })) continue;
    for (std::size_t i = 0; i < columns; ++i) {
      const std::uint32_t word = random_word(drawn, static_cast<std::uint32_t>(k * columns + i));
      column[i] = static_cast<float>(word) * (2.0F / 4294967296.0F) - 1.0F;
    }
  }
}

std::size_t WorkerCodec::encode_left(const CodedPart& part, float* values, float* left) {
  if (!is_factored(part)) {
    std::copy_n(values, part.count, left);
    return part.count;
  }
  compensate(part, values);
  const auto rank = static_cast<std::size_t>(settings_.rank);
  const std::size_t columns = part.count / part.rows;
  std::vector<float>& right = right_[part.gradient];
  draw_directions(part, rank, right);
  multiply(values, part.rows, columns, right.data(), rank, left);
  return rank * part.rows;
}

std::size_t WorkerCodec::encode_right(const CodedPart& part, const float* values, float* left,
                                      float* right) {
  if (!is_factored(part)) return 0;
  const auto rank = static_cast<std::size_t>(settings_.rank);
  const std::size_t columns = part.count / part.rows;
  orthonormalise(left, part.rows, rank);
  multiply_transposed(values, part.rows, columns, left, rank, right);
  return rank * columns;
}

void WorkerCodec::decode_factors(const CodedPart& part, const float* left, const float* right,
                                 float* values) {
  if (!is_factored(part)) {
    std::copy_n(left, part.count, values);
    return;
  }
  const auto rank = static_cast<std::size_t>(settings_.rank);
  const std::size_t columns = part.count / part.rows;
  std::copy_n(right, rank * columns, right_[part.gradient].begin());
  float* residual = settings_.feedback ? &residual_[part.offset] : nullptr;
  if (residual != nullptr) std::copy_n(values, part.count, residual);
  outer_product(left, right, part.rows, columns, rank, values);
  if (residual == nullptr) return;
  // Each is short of the mean.
  const float share = 1.0F / static_cast<float>(workers_);
  for (std::size_t i = 0; i < part.count; ++i) residual[i] -= share * values[i];
}

bool WorkerCodec::is_sketched(const CodedPart& part) const {
  return dynamiccl::is_sketched(settings_, part.count, step_);
}

std::size_t WorkerCodec::encode_sketch(const CodedPart& part, float* values, float* cells) {
  if (!is_sketched(part)) return 0;
  compensate(part, values);
  const std::size_t columns = sketch_columns(settings_, part.count, step_);
  sketch_values(values, part.count, columns, key(part, /*own=*/false), cells);
  return kSketchRows * columns;
}

std::size_t WorkerCodec::encode_found(const CodedPart& part, const float* values, const float* sums,
                                      float* exact) {
  if (!is_sketched(part)) {
    std::copy_n(values, part.count, exact);
    return part.count;
  }
  std::vector<std::uint32_t>& places = found_[part.offset];
  heavy_places(reinterpret_cast<const std::uint8_t*>(sums), part.count,
               sketch_columns(settings_, part.count, step_), key(part, /*own=*/false), kept(part),
               places);
  float* residual = settings_.feedback ? &residual_[part.offset] : nullptr;
  if (residual != nullptr) std::copy_n(values, part.count, residual);
  for (std::size_t i = 0; i < places.size(); ++i) {
    exact[i] = values[places[i]];
    if (residual != nullptr) residual[places[i]] = 0;
  }
  return places.size();
}

void WorkerCodec::decode_found(const CodedPart& part, const float* exact, float* values) const {
  if (!is_sketched(part)) {
    std::copy_n(exact, part.count, values);
    return;
  }
  const std::vector<std::uint32_t>& places = found_.at(part.offset);
  std::fill_n(values, part.count, 0.0F);
  for (std::size_t i = 0; i < places.size(); ++i) values[places[i]] = exact[i];
}

std::size_t frame_room(const CodecSettings& settings, const CodedPart& part, std::uint64_t step) {
  // All values may be kept, with their places, or in digits without a run.
  if (settings.codec == Codec::threshold) return 4 + 8 * part.count;
  if (settings.codec == Codec::adacomp) return 8 + 4 * part.count + (part.count + 7) / 8;
  if (settings.codec == Codec::three_lc) return 8 + (part.count + 4) / 5;
  if (settings.codec == Codec::qsgd_adaptive)
    return kAdaptiveHead + levels_bytes(part.count, kMostBits);
  return static_cast<std::size_t>(codec_bytes(settings, part.count, part.rows, step).value_or(0));
}

void add_part(const CodecSettings& settings, const CodedPart& part, std::uint32_t key,
              std::size_t kept, const std::uint8_t* frame, float* sum) {
  if (settings.codec == Codec::fp16 || settings.codec == Codec::bf16)
    return add_16_bit(settings.codec, frame, part.count, 1, sum);
  if (settings.codec != Codec::randomk) return add_frame(settings, part, kept, frame, 1, sum);
  for (std::size_t i = 0; i < kept; ++i) {
    float value = 0;
    std::memcpy(&value, frame + sizeof value * i, sizeof value);
    sum[drawn_place(i, kept, part.count, key)] += value;
  }
}

std::size_t frame_kept(const CodecSettings& settings, const CodedPart& part, std::uint64_t step,
                       const std::uint8_t* frame) {
  if (!codec_row(settings.codec).alike) return sparse_kept(frame);
  return kept_values(density_at(settings, step), part.count);
}

std::size_t frame_bytes(const CodecSettings& settings, const CodedPart& part, std::uint64_t step,
                        const std::uint8_t* frame) {
  if (settings.codec == Codec::threshold) return 4 + 8 * sparse_kept(frame);
  if (settings.codec == Codec::three_lc) return 8 + sparse_kept(frame);
  if (settings.codec == Codec::adacomp)
    return 8 + 4 * sparse_kept(frame) + (sparse_kept(frame) + 7) / 8;
  if (settings.codec == Codec::qsgd_adaptive)
    return kAdaptiveHead + levels_bytes(part.count, told_bits(frame));
  return static_cast<std::size_t>(codec_bytes(settings, part.count, part.rows, step).value_or(0));
}

void add_frame(const CodecSettings& settings, const CodedPart& part, std::size_t kept,
               const std::uint8_t* frame, float scale, float* sum) {
  switch (settings.codec) {
    case Codec::int8:
      return add_int8(frame, part.count, scale, sum);
    case Codec::onebit:
      return add_onebit(frame, part.count, scale, sum);
    case Codec::ef_sign:
      return add_scaled_signs(frame, part.count, scale, sum);
    case Codec::signsgd:
      return add_signs(frame, part.count, scale, sum);
    case Codec::terngrad:
      return add_ternary(frame, part.count, scale, sum);
    case Codec::qsgd:
    case Codec::diana:
      return add_levels(frame, part.count, value_bits(settings, part.count), scale, sum);
    case Codec::qsgd_adaptive:
      return add_levels(frame + kAdaptiveHead, part.count, told_bits(frame), scale, sum);
    case Codec::natural:
      return add_powers(frame, part.count, scale, sum);
    case Codec::topk:
    case Codec::dgc:
    case Codec::gtopk:
      return add_sparse(frame, kept, part.count, scale, sum);
    case Codec::threshold:
      return add_sparse(frame + 4, kept, part.count, scale, sum);
    case Codec::stc:
      return add_signed_places(frame, kept, part.count, scale, sum);
    case Codec::sbc:
      return add_places(frame, kept, part.count, scale, sum);
    case Codec::three_lc:
      return add_three_levels(frame, part.count, scale, sum);
    case Codec::adacomp:
      return add_signed_places(frame + 4, kept, part.count, scale, sum);
    default:
      DYN_ASSERT(false, "frames of a reduced codec are not added one by one");
  }
}

void sum_frames(const CodecSettings& settings, const CodedPart& part, std::uint64_t step,
                const std::vector<const std::uint8_t*>& frames, float* sum) {
  std::fill_n(sum, part.count, 0.0F);
  for (const std::uint8_t* frame : frames)
    add_frame(settings, part, frame_kept(settings, part, step, frame), frame, 1, sum);
  if (settings.codec == Codec::signsgd) take_vote(sum, part.count, static_cast<int>(frames.size()));
}

void decode_reduced(const CodecSettings& settings, const CodedPart& part, std::uint32_t key,
                    std::size_t kept, const std::uint8_t* frame, float* values) {
  if (settings.codec == Codec::fp16) return decode_float16(frame, part.count, values);
  if (settings.codec == Codec::bf16) return decode_bfloat16(frame, part.count, values);
  std::fill_n(values, part.count, 0.0F);
  for (std::size_t i = 0; i < kept; ++i) {
    float value = 0;
    std::memcpy(&value, frame + sizeof value * i, sizeof value);
    values[drawn_place(i, kept, part.count, key)] = value;
  }
}

}  // namespace dynamiccl
