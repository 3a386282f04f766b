// Quantised values, and 16 bits of a value.
#include "train/codecs/queued/gpu_kernels_base.cuh"

namespace dynamiccl::kernels {
namespace {

/// The numbers of a frame.
__global__ void numbers_kernel(FormSettings settings, MessageTable table, const Measured* measured,
                               std::uint8_t* frame) {
  const PartRow part = table.parts[blockIdx.x];
  const Measured found = of_part(part, measured);
  if (threadIdx.x != 0) return;
  auto* numbers = reinterpret_cast<float*>(frame + part.numbers);
  const double count = part.count;
  switch (settings.form) {
    case Form::int8:
      numbers[0] = found.largest / 127.0F;
      break;
    case Form::onebit: {
      const double negative = found.negatives;
      const double positive = count - negative;
      numbers[0] = static_cast<float>(positive > 0 ? found.positive / positive : 0);
      numbers[1] = static_cast<float>(negative > 0 ? found.negative / negative : 0);
      break;
    }
    case Form::ef_sign:
      numbers[0] = static_cast<float>((found.positive - found.negative) / count);
      break;
    case Form::terngrad: {
      const double cut = 2.5 * sqrt(found.squares / count);
      const double most = found.largest;
      numbers[0] = static_cast<float>(most < cut ? most : cut);
      break;
    }
    case Form::natural:
      numbers[0] = of_bits((bits_of(found.largest) >> 23) + 1);
      break;
    case Form::signsgd:
    case Form::qsgd:
      break;
  }
}

/// What a codec's levels are made and read with.
struct Levels {
  float first = 0;   ///< what a level is multiplied by, or its value where the bit is 0
  float second = 0;  ///< its value where the bit is 1
  float factor = 0;  ///< what a value is multiplied by
  int base = 0;      ///< natural: the exponent that is level 0
  int most = 1;      ///< terngrad, qsgd
  std::uint32_t key = 0;
};
template <Form kForm>
__device__ Levels levels_of(const FormSettings& settings, const PartRow& part,
                            const std::uint8_t* frame, std::uint32_t place, float scale) {
  const auto* numbers = reinterpret_cast<const float*>(frame + part.numbers);
  Levels levels;
  levels.key = static_cast<std::uint32_t>(splitmix64_of(settings.key + part.offset) >> 32);
  switch (kForm) {
    case Form::int8:
      levels.factor = numbers[0] > 0 ? 1 / numbers[0] : 0.0F;
      levels.first = scale * numbers[0];
      break;
    case Form::onebit:
      levels.first = scale * numbers[0];
      levels.second = scale * numbers[1];
      break;
    case Form::ef_sign:
      levels.first = scale * numbers[0];
      levels.second = -levels.first;
      break;
    case Form::signsgd:
      levels.first = scale;
      levels.second = -scale;
      break;
    case Form::terngrad:
      levels.factor = numbers[0] > 0 ? 1 / numbers[0] : 0.0F;
      levels.first = scale * numbers[0];
      break;
    case Form::qsgd: {
      const float length = numbers[place / kBucket];
      levels.most = (1 << (settings.bits - 1)) - 1;
      const auto most = static_cast<float>(levels.most);
      levels.factor = length > 0 ? most / length : 0.0F;
      levels.first = scale * length / most;
      break;
    }
    case Form::natural:
      levels.base = static_cast<int>(bits_of(numbers[0])) - 127;
      levels.first = scale;
      break;
  }
  return levels;
}

template <Form kForm>
__device__ std::uint32_t width_of(const FormSettings& settings) {
  switch (kForm) {
    case Form::onebit:
    case Form::ef_sign:
    case Form::signsgd:
      return 1;
    case Form::terngrad:
      return 2;
    case Form::qsgd:
      return static_cast<std::uint32_t>(settings.bits);
    case Form::int8:
    case Form::natural:
      break;
  }
  return 8;
}

__device__ std::uint32_t random_level(const Levels& levels, float value, std::uint32_t place) {
  const auto limit = static_cast<float>(levels.most);
  const float size = fabsf(value) * levels.factor;
  const float held = size < limit ? size : limit;
  const float chance =
      static_cast<float>(random_word(levels.key, place) >> 8) * (1.0F / 16777216.0F);
  const int level = static_cast<int>(held + chance);
  const int kept = level < levels.most ? level : levels.most;
  return static_cast<std::uint32_t>(levels.most + (value < 0 ? -kept : kept));
}

__device__ std::uint32_t level_of(Form form, const Levels& levels, float value,
                                  std::uint32_t place) {
  switch (form) {
    case Form::int8:
      // The sum's lowest bits are the product's whole part, rounded to the nearest.
      return bits_of(value * levels.factor + 12582912.0F) & 0xFFU;
    case Form::onebit:
    case Form::ef_sign:
    case Form::signsgd:
      return bits_of(value) >> 31;
    case Form::terngrad:
    case Form::qsgd:
      return random_level(levels, value, place);
    case Form::natural:
      break;
  }
  const std::uint32_t bits = bits_of(value);
  const auto exponent =
      static_cast<int>(((bits & ~kSignBit) + (random_word(levels.key, place) >> 9)) >> 23);
  const int above = exponent - levels.base;
  const int kept = exponent > 0 && above > 0 ? above : 0;
  return (static_cast<std::uint32_t>(kept) | ((bits >> 24) & 0x80U)) & 0xFFU;
}

__device__ float value_of(Form form, const Levels& levels, std::uint32_t level) {
  switch (form) {
    case Form::int8:
      return levels.first * static_cast<float>(static_cast<signed char>(level));
    case Form::onebit:
    case Form::ef_sign:
    case Form::signsgd:
      return level != 0 ? levels.second : levels.first;
    case Form::terngrad:
    case Form::qsgd:
      return levels.first * static_cast<float>(static_cast<int>(level) - levels.most);
    case Form::natural:
      break;
  }
  const int above = static_cast<int>(level & 0x7FU);
  const std::uint32_t size = static_cast<std::uint32_t>(above > 0 ? above + levels.base : 0) << 23;
  return levels.first * of_bits(size | ((level & 0x80U) << 24));
}

template <Form kForm>
__global__ void levels_kernel(FormSettings settings, const float* values, float* residual,
                              MessageTable table, std::uint8_t* frame) {
  const Chunk chunk = own_chunk(table);
  const auto width = width_of<kForm>(settings);
  const std::uint32_t per_byte = 8 / width;
  std::uint8_t* bytes = frame + chunk.part.levels + chunk.start / per_byte;
  Levels levels = levels_of<kForm>(settings, chunk.part, frame, chunk.start, 1);
  Levels away = levels_of<kForm>(settings, chunk.part, frame, chunk.start, -1);
  for (std::uint32_t b = threadIdx.x; b * per_byte < chunk.count; b += kThreads) {
    const std::uint32_t first = b * per_byte;
    if (kForm == Form::qsgd) {
      levels = levels_of<kForm>(settings, chunk.part, frame, chunk.start + first, 1);
      away = levels_of<kForm>(settings, chunk.part, frame, chunk.start + first, -1);
    }
    std::uint32_t packed = 0;
    for (std::uint32_t e = 0; e < per_byte && first + e < chunk.count; ++e) {
      const std::uint32_t i = first + e;
      const float value = values[chunk.at + i];
      const std::uint32_t level = level_of(kForm, levels, value, chunk.start + i);
      packed |= level << (e * width);
      if (residual != nullptr) residual[chunk.at + i] = value + value_of(kForm, away, level);
    }
    bytes[b] = static_cast<std::uint8_t>(packed);
  }
}

template <Form kForm>
__global__ void sum_levels_kernel(FormSettings settings, const std::uint8_t* frames,
                                  std::size_t stride, int ranks, MessageTable table,
                                  float* values) {
  const Chunk chunk = own_chunk(table);
  const auto width = width_of<kForm>(settings);
  const std::uint32_t per_byte = 8 / width;
  const std::uint32_t mask = width == 8 ? 0xFFU : (1U << width) - 1;
  const std::uint64_t at = chunk.part.levels + chunk.start / per_byte;
  for (std::uint32_t b = threadIdx.x; b * per_byte < chunk.count; b += kThreads) {
    const std::uint32_t first = b * per_byte;
    float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint8_t* frame = frames + static_cast<std::size_t>(rank) * stride;
      const Levels levels = levels_of<kForm>(settings, chunk.part, frame, chunk.start + first, 1);
      const std::uint32_t packed = frame[at + b];
      for (std::uint32_t e = 0; e < per_byte; ++e)
        sums[e] += value_of(kForm, levels, (packed >> (e * width)) & mask);
    }
    for (std::uint32_t e = 0; e < per_byte && first + e < chunk.count; ++e) {
      float sum = sums[e];
      if (kForm == Form::signsgd) {
        const auto all = static_cast<float>(ranks);
        sum = sum > 0 ? all : sum < 0 ? -all : 0.0F;
      }
      values[chunk.at + first + e] = sum;
    }
  }
}

// --- 16 bits -----------------------------------------------------------------------------------

__device__ std::uint16_t to_bfloat16(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  // A NaN must not round up into infinity.
  const bool nan = (bits & ~kSignBit) > 0x7F800000U;
  return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded);
}
__device__ float from_16(bool bfloat16, std::uint16_t bits) {
  return bfloat16 ? of_bits(static_cast<std::uint32_t>(bits) << 16) : from_float16(bits);
}
__device__ std::size_t own_element() {
  return static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ std::size_t all_threads() { return static_cast<std::size_t>(gridDim.x) * kThreads; }

__global__ void shorten_kernel(bool bfloat16, float* values, float* residual, std::size_t count,
                               std::uint16_t* frame) {
  for (std::size_t i = own_element(); i < count; i += all_threads()) {
    const float value = residual != nullptr ? values[i] + residual[i] : values[i];
    const std::uint16_t bits = bfloat16 ? to_bfloat16(value) : to_float16(value);
    frame[i] = bits;
    if (residual == nullptr) continue;
    values[i] = value;
    residual[i] = value - from_16(bfloat16, bits);
  }
}
__global__ void lengthen_kernel(bool bfloat16, const std::uint16_t* frame, std::size_t count,
                                float* values) {
  for (std::size_t i = own_element(); i < count; i += all_threads())
    values[i] = from_16(bfloat16, frame[i]);
}

unsigned blocks_for(std::size_t count) {
  constexpr std::size_t kMost = 4096;
  const std::size_t wanted = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < kMost ? wanted : kMost);
}

unsigned measured_for(Form form) {
  switch (form) {
    case Form::int8:
    case Form::natural:
      return kLargest;
    case Form::onebit:
    case Form::ef_sign:
      return kSigns;
    case Form::terngrad:
      return kLargest | kSquares;
    case Form::qsgd:
      return kNorms;
    case Form::signsgd:
      break;
  }
  return 0;
}

template <template <Form> class Kernel, class... A>
void launch_form(Launches& launches, Form form, unsigned blocks, void* stream, A... arguments) {
  switch (form) {
    case Form::int8:
      return launches(Kernel<Form::int8>::kernel, blocks, stream, arguments...);
    case Form::onebit:
      return launches(Kernel<Form::onebit>::kernel, blocks, stream, arguments...);
    case Form::ef_sign:
      return launches(Kernel<Form::ef_sign>::kernel, blocks, stream, arguments...);
    case Form::signsgd:
      return launches(Kernel<Form::signsgd>::kernel, blocks, stream, arguments...);
    case Form::terngrad:
      return launches(Kernel<Form::terngrad>::kernel, blocks, stream, arguments...);
    case Form::qsgd:
      return launches(Kernel<Form::qsgd>::kernel, blocks, stream, arguments...);
    case Form::natural:
      return launches(Kernel<Form::natural>::kernel, blocks, stream, arguments...);
  }
}
template <Form kForm>
struct LevelsKernel {
  static constexpr auto kernel = levels_kernel<kForm>;
};
template <Form kForm>
struct SumLevelsKernel {
  static constexpr auto kernel = sum_levels_kernel<kForm>;
};

}  // namespace

const char* encode_form(const FormSettings& settings, float* values, float* residual,
                        const MessageTable& table, const Scratch& scratch, std::uint8_t* frame,
                        void* stream) {
  Launches launches;
  const unsigned what = measured_for(settings.form);
  if (what != 0 || residual != nullptr)
    launches(measure_kernel, table.chunk_count, stream, values, residual, table, scratch.measured,
             what, frame);
  if (what != 0 && what != kNorms)
    launches(numbers_kernel, table.part_count, stream, settings, table, scratch.measured, frame);
  launch_form<LevelsKernel>(launches, settings.form, table.chunk_count, stream, settings, values,
                            residual, table, frame);
  return launches.failure();
}

const char* decode_form(const FormSettings& settings, const std::uint8_t* frames,
                        std::size_t stride, int ranks, const MessageTable& table, float* values,
                        void* stream) {
  Launches launches;
  launch_form<SumLevelsKernel>(launches, settings.form, table.chunk_count, stream, settings, frames,
                               stride, ranks, table, values);
  return launches.failure();
}

const char* shorten(bool bfloat16, float* values, float* residual, std::size_t count,
                    std::uint16_t* frame, void* stream) {
  return launch(shorten_kernel, blocks_for(count), stream, bfloat16, values, residual, count,
                frame);
}
const char* lengthen(bool bfloat16, const std::uint16_t* frame, std::size_t count, float* values,
                     void* stream) {
  return launch(lengthen_kernel, blocks_for(count), stream, bfloat16, frame, count, values);
}

}  // namespace dynamiccl::kernels
