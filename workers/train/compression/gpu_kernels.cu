// Compiled by nvcc; tests compile the same text for the host, a thread for each of a block's.
#include "workers/train/compression/gpu_kernels.hpp"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "tests/workers/train/kernels_on_host.hpp"
#endif

#include "workers/train/compression/random_words.hpp"

namespace dynamiccl::kernels {
namespace {

#ifdef __CUDACC__
constexpr unsigned kThreads = 256;

template <class... P, class... A>
const char* launch(void (*kernel)(P...), unsigned blocks, void* stream, A... arguments) {
  if (blocks == 0) return nullptr;
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  const cudaError_t code = cudaGetLastError();
  return code == cudaSuccess ? nullptr : cudaGetErrorString(code);
}
__device__ std::uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ float of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
__device__ std::uint16_t to_float16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ float from_float16(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
#endif

constexpr std::uint32_t kSignBit = 0x80000000U;
constexpr std::uint32_t kLanes = 16;    // kSumLanes of loops.hpp
constexpr std::uint32_t kBucket = 512;  // kQsgdBucket
constexpr std::uint32_t kBuckets = kChunk / kBucket;
constexpr std::uint32_t kPerThread = kChunk / kThreads;
static_assert(kChunk % kThreads == 0);

__device__ std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

/// The chunk of this block.
struct Chunk {
  PartRow part;
  std::uint32_t start;
  std::uint32_t count;
  std::uint64_t at;  ///< in the flat buffers
};
__device__ Chunk own_chunk(const MessageTable& table) {
  const ChunkRow row = table.chunks[blockIdx.x];
  Chunk chunk;
  chunk.part = table.parts[row.part];
  chunk.start = row.start;
  chunk.count = smaller(kChunk, chunk.part.count - row.start);
  chunk.at = chunk.part.offset + row.start;
  return chunk;
}

/// One lane's sum, as loops.hpp has it: what does not fill all lanes goes to the first.
template <class Term>
__device__ float lane_sum(const float* values, std::uint32_t count, std::uint32_t lane, Term term) {
  const std::uint32_t full = count / kLanes * kLanes;
  float sum = 0;
  for (std::uint32_t i = lane; i < full; i += kLanes) sum += term(values[i]);
  if (lane == 0)
    for (std::uint32_t i = full; i < count; ++i) sum += term(values[i]);
  return sum;
}
__device__ double sum_of_lanes(const float* lanes) {
  double sum = 0;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

/// What a chunk is measured for.
enum What : unsigned { kLargest = 1, kSigns = 2, kSquares = 4, kNorms = 8 };

/// Values become values + residual; what the codec's numbers are made of goes to `measured`, QSGD's
/// numbers, which are a bucket's alone, to the frame.
__global__ void measure_kernel(float* values, const float* residual, MessageTable table,
                               Measured* measured, unsigned what, std::uint8_t* frame) {
  __shared__ float cache[kChunk];
  __shared__ float lanes[8][kLanes];
  __shared__ unsigned largest;
  __shared__ unsigned negatives;
  static_assert(kBuckets <= 8);
  const Chunk chunk = own_chunk(table);
  const unsigned t = threadIdx.x;
  if (t == 0) largest = negatives = 0;
  __syncthreads();
  unsigned own_largest = 0;
  unsigned own_negatives = 0;
  for (std::uint32_t i = t; i < chunk.count; i += kThreads) {
    float value = values[chunk.at + i];
    if (residual != nullptr) {
      value += residual[chunk.at + i];
      values[chunk.at + i] = value;
    }
    cache[i] = value;
    const std::uint32_t size = bits_of(value) & ~kSignBit;
    own_largest = size > own_largest ? size : own_largest;
    own_negatives += bits_of(value) >> 31;
  }
  if ((what & kLargest) != 0 && own_largest > 0) atomicMax(&largest, own_largest);
  if ((what & kSigns) != 0 && own_negatives > 0) atomicAdd(&negatives, own_negatives);
  __syncthreads();
  const std::uint32_t row = t / kLanes;
  const std::uint32_t lane = t % kLanes;
  if ((what & kSigns) != 0 && row < 2) {
    lanes[row][lane] =
        row == 0 ? lane_sum(cache, chunk.count, lane, [](float v) { return v > 0 ? v : 0.0F; })
                 : lane_sum(cache, chunk.count, lane, [](float v) { return v < 0 ? v : 0.0F; });
  }
  if ((what & kSquares) != 0 && row == 2)
    lanes[2][lane] = lane_sum(cache, chunk.count, lane, [](float v) { return v * v; });
  if ((what & kNorms) != 0 && row < kBuckets && row * kBucket < chunk.count)
    lanes[row][lane] =
        lane_sum(cache + row * kBucket, smaller(kBucket, chunk.count - row * kBucket), lane,
                 [](float v) { return v * v; });
  __syncthreads();
  if ((what & kNorms) != 0) {
    if (t < kBuckets && t * kBucket < chunk.count) {
      auto* norms = reinterpret_cast<float*>(frame + chunk.part.numbers);
      norms[chunk.start / kBucket + t] = static_cast<float>(sqrt(sum_of_lanes(lanes[t])));
    }
    return;
  }
  if (t != 0 || what == 0) return;
  Measured found{};
  if ((what & kSigns) != 0) {
    found.positive = sum_of_lanes(lanes[0]);
    found.negative = sum_of_lanes(lanes[1]);
  }
  if ((what & kSquares) != 0) found.squares = sum_of_lanes(lanes[2]);
  found.largest = of_bits(largest);
  found.negatives = negatives;
  measured[blockIdx.x] = found;
}

/// A part's chunks together, in their order. One block; what the first thread gets counts.
__device__ Measured of_part(const PartRow& part, const Measured* measured) {
  __shared__ Measured some[kThreads];
  Measured all{};
  double negatives = 0;
  for (std::uint32_t first = 0; first < part.chunks; first += kThreads) {
    const std::uint32_t count = smaller(kThreads, part.chunks - first);
    __syncthreads();
    if (threadIdx.x < count) some[threadIdx.x] = measured[part.first_chunk + first + threadIdx.x];
    __syncthreads();
    for (std::uint32_t i = 0; threadIdx.x == 0 && i < count; ++i) {
      all.positive += some[i].positive;
      all.negative += some[i].negative;
      all.squares += some[i].squares;
      all.largest = some[i].largest > all.largest ? some[i].largest : all.largest;
      negatives += some[i].negatives;
    }
  }
  all.negatives = static_cast<std::uint32_t>(negatives);
  return all;
}

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
  levels.key = static_cast<std::uint32_t>(mixed_word(settings.key + part.offset) >> 32);
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

// --- Selection ---------------------------------------------------------------------------------

/// Momentum correction of what measure_kernel() has seen: the velocity waits, not the gradient.
__global__ void correct_kernel(float* values, float* waiting, Correction correction,
                               MessageTable table, const float* factors) {
  const Chunk chunk = own_chunk(table);
  const float factor = correction.most > 0 ? factors[table.chunks[blockIdx.x].part] : 1.0F;
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    const std::uint64_t at = chunk.at + i;
    const float velocity = correction.factor * correction.momentum[at] + factor * values[at];
    correction.momentum[at] = velocity;
    waiting[at] += velocity;
    values[at] = waiting[at];
  }
}
__global__ void clip_kernel(double most, MessageTable table, const Measured* measured,
                            float* factors) {
  const Measured found = of_part(table.parts[blockIdx.x], measured);
  if (threadIdx.x != 0) return;
  const double length = sqrt(found.squares);
  factors[blockIdx.x] = length > most ? static_cast<float>(most / length) : 1.0F;
}
__global__ void compensate_kernel(float* values, const float* residual, MessageTable table) {
  const Chunk chunk = own_chunk(table);
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads)
    values[chunk.at + i] += residual[chunk.at + i];
}

__global__ void begin_selection_kernel(MessageTable table, Selection* selected) {
  for (std::uint32_t p = threadIdx.x; p < table.part_count; p += kThreads)
    selected[p] = {0, table.parts[p].kept};
}
/// How many magnitudes of the prefix found so far have which next bits.
__global__ void count_bins_kernel(const float* values, MessageTable table,
                                  const Selection* selected, std::uint32_t shift,
                                  std::uint32_t width, std::uint32_t* bins) {
  __shared__ unsigned own[kSelectBins];
  const std::uint32_t part = table.chunks[blockIdx.x].part;
  const Chunk chunk = own_chunk(table);
  const std::uint32_t prefix = selected[part].prefix;
  const std::uint32_t count = 1U << width;
  for (std::uint32_t bin = threadIdx.x; bin < count; bin += kThreads) own[bin] = 0;
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    const std::uint32_t size = bits_of(values[chunk.at + i]) & ~kSignBit;
    if (size >> (shift + width) == prefix) atomicAdd(&own[(size >> shift) & (count - 1)], 1U);
  }
  __syncthreads();
  for (std::uint32_t bin = threadIdx.x; bin < count; bin += kThreads)
    if (own[bin] > 0) atomicAdd(&bins[part * kSelectBins + bin], own[bin]);
}
/// The bin that the last of the kept is in becomes part of the prefix; bins are zeros again.
__global__ void choose_bin_kernel(std::uint32_t width, Selection* selected, std::uint32_t* bins) {
  __shared__ unsigned own[kSelectBins];
  __shared__ unsigned sums[kThreads];
  std::uint32_t* all = bins + blockIdx.x * kSelectBins;
  const std::uint32_t count = 1U << width;
  const std::uint32_t each = (count + kThreads - 1) / kThreads;
  const std::uint32_t first = threadIdx.x * each;
  unsigned sum = 0;
  for (std::uint32_t bin = first; bin < smaller(first + each, count); ++bin) {
    own[bin] = all[bin];
    all[bin] = 0;
    sum += own[bin];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  Selection state = selected[blockIdx.x];
  std::uint32_t group = kThreads;
  while (group > 1 && sums[group - 1] < state.remaining) state.remaining -= sums[--group];
  std::uint32_t bin = smaller(group * each, count);
  while (bin > 1 && own[bin - 1] < state.remaining) state.remaining -= own[--bin];
  state.prefix = (state.prefix << width) | (bin - 1);
  selected[blockIdx.x] = state;
}
__global__ void count_kept_kernel(const float* values, MessageTable table,
                                  const Selection* selected, ChunkCount* counts) {
  __shared__ unsigned greater;
  __shared__ unsigned equal;
  if (threadIdx.x == 0) greater = equal = 0;
  __syncthreads();
  const Chunk chunk = own_chunk(table);
  const std::uint32_t least = selected[table.chunks[blockIdx.x].part].prefix;
  unsigned own_greater = 0;
  unsigned own_equal = 0;
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    const std::uint32_t size = bits_of(values[chunk.at + i]) & ~kSignBit;
    own_greater += size > least ? 1 : 0;
    own_equal += size == least ? 1 : 0;
  }
  if (own_greater > 0) atomicAdd(&greater, own_greater);
  if (own_equal > 0) atomicAdd(&equal, own_equal);
  __syncthreads();
  if (threadIdx.x == 0) counts[blockIdx.x] = {greater, equal};
}
/// Counts become those of the chunks before.
__global__ void add_counts_kernel(MessageTable table, ChunkCount* counts) {
  __shared__ ChunkCount some[kThreads];
  const PartRow part = table.parts[blockIdx.x];
  ChunkCount before{0, 0};
  for (std::uint32_t first = 0; first < part.chunks; first += kThreads) {
    const std::uint32_t count = smaller(kThreads, part.chunks - first);
    ChunkCount* own = counts + part.first_chunk + first;
    __syncthreads();
    if (threadIdx.x < count) some[threadIdx.x] = own[threadIdx.x];
    __syncthreads();
    for (std::uint32_t i = 0; threadIdx.x == 0 && i < count; ++i) {
      const ChunkCount now = some[i];
      some[i] = before;
      before.greater += now.greater;
      before.equal += now.equal;
    }
    __syncthreads();
    if (threadIdx.x < count) own[threadIdx.x] = some[threadIdx.x];
  }
}
/// Each thread's stretch of the chunk, in order; what is sent leaves the residual and the momentum.
__global__ void store_kept_kernel(const float* values, float* residual, float* momentum,
                                  MessageTable table, const Selection* selected,
                                  const ChunkCount* counts, std::uint32_t* frame) {
  // A stretch and one more, so that neighbours' stretches begin in different banks.
  constexpr std::uint32_t kStretch = kPerThread + 1;
  __shared__ std::uint32_t cache[kThreads * kStretch];
  __shared__ bool is_kept[kChunk];
  __shared__ unsigned before[2][kThreads];
  const Chunk chunk = own_chunk(table);
  const Selection state = selected[table.chunks[blockIdx.x].part];
  const unsigned t = threadIdx.x;
  for (std::uint32_t i = t; i < chunk.count; i += kThreads)
    cache[i / kPerThread * kStretch + i % kPerThread] = bits_of(values[chunk.at + i]);
  __syncthreads();
  const std::uint32_t first = smaller(t * kPerThread, chunk.count);
  const std::uint32_t own_count = smaller(kPerThread, chunk.count - first);
  const std::uint32_t* stretch = cache + t * kStretch;
  unsigned own = 0;  // greater in the lower half, equal in the upper
  for (std::uint32_t i = 0; i < own_count; ++i) {
    const std::uint32_t size = stretch[i] & ~kSignBit;
    own += (size > state.prefix ? 1U : 0U) + (size == state.prefix ? 1U << 16 : 0U);
  }
  before[0][t] = own;
  __syncthreads();
  unsigned from = 0;
  for (unsigned step = 1; step < kThreads; step *= 2) {
    before[1 - from][t] = before[from][t] + (t >= step ? before[from][t - step] : 0U);
    from = 1 - from;
    __syncthreads();
  }
  const unsigned earlier = before[from][t] - own;
  std::uint32_t greater = counts[blockIdx.x].greater + (earlier & 0xFFFFU);
  std::uint32_t equal = counts[blockIdx.x].equal + (earlier >> 16);
  std::uint32_t* places = frame + chunk.part.levels / 4;
  for (std::uint32_t i = 0; i < own_count; ++i) {
    const std::uint32_t size = stretch[i] & ~kSignBit;
    const bool kept = size > state.prefix || (size == state.prefix && equal < state.remaining);
    is_kept[first + i] = kept;
    if (kept) {
      const std::uint32_t to = greater + smaller(equal, state.remaining);
      places[to] = chunk.start + first + i;
      places[chunk.part.kept + to] = stretch[i];
    }
    greater += size > state.prefix ? 1 : 0;
    equal += size == state.prefix ? 1 : 0;
  }
  if (residual == nullptr) return;
  __syncthreads();
  for (std::uint32_t i = t; i < chunk.count; i += kThreads) {
    const std::uint32_t bits = cache[i / kPerThread * kStretch + i % kPerThread];
    residual[chunk.at + i] = is_kept[i] ? 0.0F : of_bits(bits);
    if (momentum != nullptr && is_kept[i]) momentum[chunk.at + i] = 0;
  }
}

__global__ void clear_kernel(MessageTable table, float* values) {
  const Chunk chunk = own_chunk(table);
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) values[chunk.at + i] = 0;
}
/// Calls `each` with the numbers of kept values that are this thread's: those of a part are shared
/// among its chunks' blocks.
template <class Each>
__device__ void of_kept(const MessageTable& table, Each each) {
  const PartRow part = table.parts[table.chunks[blockIdx.x].part];
  const std::uint32_t block = static_cast<std::uint32_t>(blockIdx.x) - part.first_chunk;
  for (std::uint32_t i = block * kThreads + threadIdx.x; i < part.kept; i += part.chunks * kThreads)
    each(part, i);
}
__global__ void add_sparse_kernel(const std::uint32_t* frame, MessageTable table, float* values) {
  of_kept(table, [&](const PartRow& part, std::uint32_t i) {
    const std::uint32_t* places = frame + part.levels / 4;
    const std::uint32_t place = places[i];
    if (place < part.count) values[part.offset + place] += of_bits(places[part.kept + i]);
  });
}

// --- Drawn places ------------------------------------------------------------------------------

__global__ void keep_drawn_kernel(float* values, float* residual, bool scaled, std::uint64_t key,
                                  MessageTable table, float* frame) {
  of_kept(table, [&](const PartRow& part, std::uint32_t i) {
    const auto own = static_cast<std::uint32_t>(mixed_word(key + part.offset) >> 32);
    const std::size_t place = drawn_place(i, part.kept, part.count, own);
    float value = values[part.offset + place];
    if (residual != nullptr) residual[part.offset + place] = 0;
    if (scaled) value *= static_cast<float>(stratum_size(i, part.kept, part.count));
    frame[part.levels / 4 + i] = value;
  });
}
__global__ void keep_all_kernel(float* values, float* residual, MessageTable table) {
  const Chunk chunk = own_chunk(table);
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    values[chunk.at + i] += residual[chunk.at + i];
    residual[chunk.at + i] = values[chunk.at + i];
  }
}
__global__ void place_drawn_kernel(const float* frame, std::uint64_t key, MessageTable table,
                                   float* values) {
  of_kept(table, [&](const PartRow& part, std::uint32_t i) {
    const auto own = static_cast<std::uint32_t>(mixed_word(key + part.offset) >> 32);
    values[part.offset + drawn_place(i, part.kept, part.count, own)] = frame[part.levels / 4 + i];
  });
}

// --- Factors -----------------------------------------------------------------------------------

/// A stretch of a part that is not factored goes from one buffer to another.
__device__ void copy_chunk(const Chunk& chunk, const float* from, float* to) {
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) to[i] = from[i];
}
/// Rows or columns shared among a part's blocks, `of` threads for each.
template <class Each>
__device__ void of_lines(const PartRow& part, std::uint32_t lines, std::uint32_t of, Each each) {
  const std::uint32_t block = static_cast<std::uint32_t>(blockIdx.x) - part.first_chunk;
  const std::uint32_t at_once = kThreads / of;
  const std::uint32_t turns = (lines + at_once - 1) / at_once;
  for (std::uint32_t turn = block; turn < turns; turn += part.chunks)
    each(turn * at_once + threadIdx.x / of, threadIdx.x % of);
}
/// Sixteen lanes of a dot product, then all of them in order: as loops.hpp's.
__device__ float dot_of_lanes(const float* lanes) {
  float sum = 0;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}
__device__ float dot_lane(const float* a, const float* b, std::uint32_t count, std::uint32_t lane) {
  const std::uint32_t full = count / kLanes * kLanes;
  float sum = 0;
  for (std::uint32_t i = lane; i < full; i += kLanes) sum += a[i] * b[i];
  if (lane == 0)
    for (std::uint32_t i = full; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

__global__ void draw_right_kernel(Factors factors, std::uint64_t key, MessageTable table) {
  const PartRow part = table.parts[table.chunks[blockIdx.x].part];
  if (part.rows == 0) return;
  const std::uint32_t columns = part.count / part.rows;
  const auto own = static_cast<std::uint32_t>(mixed_word(key + part.offset) >> 32);
  const std::uint32_t wanted = static_cast<std::uint32_t>(factors.rank) * columns;
  const std::uint32_t block = static_cast<std::uint32_t>(blockIdx.x) - part.first_chunk;
  for (std::uint32_t i = block * kThreads + threadIdx.x; i < wanted; i += part.chunks * kThreads)
    factors.right[part.right + i] =
        static_cast<float>(random_word(own, i)) * (2.0F / 4294967296.0F) - 1.0F;
}
__global__ void compensate_factored_kernel(float* values, const float* residual,
                                           MessageTable table) {
  const Chunk chunk = own_chunk(table);
  if (chunk.part.rows == 0) return;
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads)
    values[chunk.at + i] += residual[chunk.at + i];
}
__global__ void multiply_kernel(const float* values, Factors factors, MessageTable table) {
  __shared__ float lanes[kThreads / kLanes][kLanes];
  const Chunk chunk = own_chunk(table);
  const PartRow part = chunk.part;
  if (part.rows == 0)
    return copy_chunk(chunk, values + chunk.at, factors.left + part.left + chunk.start);
  const std::uint32_t columns = part.count / part.rows;
  const std::uint32_t lines = part.rows * static_cast<std::uint32_t>(factors.rank);
  of_lines(part, lines, kLanes, [&](std::uint32_t line, std::uint32_t lane) {
    // Ranks of a row side by side: they read the same values.
    const auto rank = static_cast<std::uint32_t>(factors.rank);
    const std::uint32_t row = line / rank;
    const std::uint32_t k = line % rank;
    if (line < lines)
      lanes[threadIdx.x / kLanes][lane] =
          dot_lane(values + part.offset + static_cast<std::uint64_t>(row) * columns,
                   factors.right + part.right + k * columns, columns, lane);
    __syncthreads();
    if (line < lines && lane == 0)
      factors.left[part.left + k * part.rows + row] = dot_of_lanes(lanes[threadIdx.x / kLanes]);
    __syncthreads();
  });
}

/// Root of a sum of squares as loops.hpp's norm(), by a block; the first thread's counts.
__device__ double norm_by_block(const float* values, std::uint32_t count) {
  __shared__ float lanes[kLanes];
  double sum = 0;
  for (std::uint32_t at = 0; at < count; at += kChunk) {
    __syncthreads();
    if (threadIdx.x < kLanes)
      lanes[threadIdx.x] = lane_sum(values + at, smaller(kChunk, count - at), threadIdx.x,
                                    [](float v) { return v * v; });
    __syncthreads();
    // One sum over all lanes of all chunks.
    if (threadIdx.x == 0)
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  }
  return sqrt(sum);
}
/// Gram-Schmidt over a left factor's columns, a block for each part.
__global__ void orthonormalise_kernel(Factors factors, MessageTable table) {
  __shared__ float lanes[kLanes];
  __shared__ float shared;
  const PartRow part = table.parts[blockIdx.x];
  if (part.rows == 0) return;
  float* columns = factors.left + part.left;
  const unsigned t = threadIdx.x;
  for (int k = 0; k < factors.rank; ++k) {
    float* column = columns + static_cast<std::uint32_t>(k) * part.rows;
    const double before = norm_by_block(column, part.rows);
    for (int other = 0; other < k; ++other) {
      const float* one = columns + static_cast<std::uint32_t>(other) * part.rows;
      __syncthreads();
      if (t < kLanes) lanes[t] = dot_lane(one, column, part.rows, t);
      __syncthreads();
      if (t == 0) shared = -dot_of_lanes(lanes);
      __syncthreads();
      for (std::uint32_t i = t; i < part.rows; i += kThreads) column[i] += shared * one[i];
      __syncthreads();
    }
    const double left = norm_by_block(column, part.rows);
    if (t == 0) shared = left <= 1e-12 * before || left == 0 ? 0.0F : static_cast<float>(1 / left);
    __syncthreads();
    for (std::uint32_t i = t; i < part.rows; i += kThreads) column[i] *= shared;
    __syncthreads();
  }
}
__global__ void multiply_transposed_kernel(const float* values, Factors factors,
                                           MessageTable table) {
  const PartRow part = table.parts[table.chunks[blockIdx.x].part];
  if (part.rows == 0) return;
  const std::uint32_t columns = part.count / part.rows;
  const std::uint32_t lines = columns * static_cast<std::uint32_t>(factors.rank);
  of_lines(part, lines, 1, [&](std::uint32_t line, std::uint32_t) {
    if (line >= lines) return;
    const std::uint32_t column = line % columns;
    const float* left = factors.left + part.left + line / columns * part.rows;
    const float* from = values + part.offset + column;
    float sum = 0;
    for (std::uint32_t row = 0; row < part.rows; ++row)
      sum += left[row] * from[static_cast<std::uint64_t>(row) * columns];
    factors.right[part.right + line] = sum;
  });
}
__global__ void outer_product_kernel(float* values, float* residual, float share, Factors factors,
                                     MessageTable table) {
  const Chunk chunk = own_chunk(table);
  const PartRow part = chunk.part;
  if (part.rows == 0)
    return copy_chunk(chunk, factors.left + part.left + chunk.start, values + chunk.at);
  const std::uint32_t columns = part.count / part.rows;
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    const std::uint32_t row = (chunk.start + i) / columns;
    const std::uint32_t column = (chunk.start + i) % columns;
    float sum = 0;
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(factors.rank); ++k)
      sum += factors.left[part.left + k * part.rows + row] *
             factors.right[part.right + k * columns + column];
    if (residual != nullptr) residual[chunk.at + i] = values[chunk.at + i] - share * sum;
    values[chunk.at + i] = sum;
  }
}

/// The first failure of several launches.
class Launches {
 public:
  template <class... A>
  void operator()(A... arguments) {
    if (failure_ == nullptr) failure_ = launch(arguments...);
  }
  [[nodiscard]] const char* failure() const { return failure_; }

 private:
  const char* failure_ = nullptr;
};

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

const char* encode_largest(float* values, float* residual, const Correction& correction,
                           const MessageTable& table, const Scratch& scratch, std::uint32_t* frame,
                           void* stream) {
  Launches launches;
  const unsigned chunks = table.chunk_count;
  const unsigned parts = table.part_count;
  if (correction.momentum != nullptr) {
    if (correction.most > 0) {
      launches(measure_kernel, chunks, stream, values, nullptr, table, scratch.measured,
               static_cast<unsigned>(kSquares), nullptr);
      launches(clip_kernel, parts, stream, correction.most, table, scratch.measured,
               scratch.factors);
    }
    launches(correct_kernel, chunks, stream, values, residual, correction, table, scratch.factors);
  } else if (residual != nullptr) {
    launches(compensate_kernel, chunks, stream, values, residual, table);
  }
  launches(begin_selection_kernel, 1U, stream, table, scratch.selected);
  // All 31 bits of a magnitude.
  constexpr std::uint32_t kWidths[] = {11, 11, 9};
  std::uint32_t shift = 31;
  for (const std::uint32_t width : kWidths) {
    shift -= width;
    launches(count_bins_kernel, chunks, stream, values, table, scratch.selected, shift, width,
             scratch.bins);
    launches(choose_bin_kernel, parts, stream, width, scratch.selected, scratch.bins);
  }
  launches(count_kept_kernel, chunks, stream, values, table, scratch.selected, scratch.counts);
  launches(add_counts_kernel, parts, stream, table, scratch.counts);
  launches(store_kept_kernel, chunks, stream, values, residual, correction.momentum, table,
           scratch.selected, scratch.counts, frame);
  return launches.failure();
}

const char* decode_sparse(const std::uint32_t* frames, std::size_t stride, int ranks,
                          const MessageTable& table, float* values, void* stream) {
  Launches launches;
  launches(clear_kernel, table.chunk_count, stream, table, values);
  for (int rank = 0; rank < ranks; ++rank)
    launches(add_sparse_kernel, table.chunk_count, stream,
             frames + static_cast<std::size_t>(rank) * stride / 4, table, values);
  return launches.failure();
}

const char* encode_drawn(float* values, float* residual, bool scaled, std::uint64_t key,
                         const MessageTable& table, float* frame, void* stream) {
  Launches launches;
  if (residual != nullptr)
    launches(keep_all_kernel, table.chunk_count, stream, values, residual, table);
  launches(keep_drawn_kernel, table.chunk_count, stream, values, residual, scaled, key, table,
           frame);
  return launches.failure();
}
const char* decode_drawn(const float* frame, std::uint64_t key, const MessageTable& table,
                         float* values, void* stream) {
  Launches launches;
  launches(clear_kernel, table.chunk_count, stream, table, values);
  launches(place_drawn_kernel, table.chunk_count, stream, frame, key, table, values);
  return launches.failure();
}

const char* draw_right(const Factors& factors, std::uint64_t key, const MessageTable& table,
                       void* stream) {
  return launch(draw_right_kernel, table.chunk_count, stream, factors, key, table);
}
const char* encode_left(float* values, const float* residual, const Factors& factors,
                        const MessageTable& table, void* stream) {
  Launches launches;
  if (residual != nullptr)
    launches(compensate_factored_kernel, table.chunk_count, stream, values, residual, table);
  launches(multiply_kernel, table.chunk_count, stream, values, factors, table);
  return launches.failure();
}
const char* encode_right(const float* values, const Factors& factors, const MessageTable& table,
                         void* stream) {
  Launches launches;
  launches(orthonormalise_kernel, table.part_count, stream, factors, table);
  launches(multiply_transposed_kernel, table.chunk_count, stream, values, factors, table);
  return launches.failure();
}
const char* decode_factors(float* values, float* residual, float share, const Factors& factors,
                           const MessageTable& table, void* stream) {
  return launch(outer_product_kernel, table.chunk_count, stream, values, residual, share, factors,
                table);
}

}  // namespace dynamiccl::kernels
