// The largest values of a message, and drawn ones.
#include "train/codecs/queued/gpu_kernels_base.cuh"

namespace dynamiccl::kernels {
namespace {

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
    const auto own = static_cast<std::uint32_t>(splitmix64_of(key + part.offset) >> 32);
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
    const auto own = static_cast<std::uint32_t>(splitmix64_of(key + part.offset) >> 32);
    values[part.offset + drawn_place(i, part.kept, part.count, own)] = frame[part.levels / 4 + i];
  });
}

}  // namespace

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

}  // namespace dynamiccl::kernels
