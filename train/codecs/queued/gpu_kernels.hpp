#pragma once

#include <cstddef>
#include <cstdint>

namespace dynamiccl::kernels {

// Codecs on a GPU, for all parts of a message at once: a few launches, however many gradients it
// has. They say of the same values what the classes of gradient_codec.hpp say, bit for bit, as sums
// go over the same lanes and chunks in the same order. Only the frame differs, in the order of what
// it holds: the numbers of all parts, then their levels. Every function queues its work on `stream`
// (a cudaStream_t) and returns nullptr, or what the CUDA runtime says.

/// Elements of a part that one block takes: the chunks of loops.hpp's sums.
constexpr std::uint32_t kChunk = 4096;

/// One part of a message.
struct PartRow {
  std::uint64_t offset;       ///< of its first element in the flat buffers
  std::uint32_t count;        ///< elements
  std::uint32_t first_chunk;  ///< of the message's chunks
  std::uint32_t chunks;
  std::uint32_t kept;     ///< sparse codecs: values
  std::uint32_t numbers;  ///< where its numbers begin in a frame, bytes, a multiple of 4
  std::uint32_t levels;   ///< where its levels, or places and values, begin there, bytes
  std::uint32_t rows;     ///< low rank: of a matrix that is factored, else 0
  std::uint32_t left;     ///< low rank: where its left factor or its values begin, floats
  std::uint32_t right;    ///< low rank: where its right factor begins, floats
};
struct ChunkRow {
  std::uint32_t part;
  std::uint32_t start;  ///< element of the part
};
/// A message, in the GPU's memory.
struct MessageTable {
  const PartRow* parts;
  const ChunkRow* chunks;
  std::uint32_t part_count;
  std::uint32_t chunk_count;
};

/// What is found of a chunk, and of a part's selection.
struct Measured {
  double positive;
  double negative;
  double squares;
  float largest;
  std::uint32_t negatives;
};
struct Selection {
  std::uint32_t prefix;     ///< of the least magnitude that is kept, the bits known so far
  std::uint32_t remaining;  ///< values to take of those with that prefix
};
struct ChunkCount {
  std::uint32_t greater;
  std::uint32_t equal;
};
constexpr std::uint32_t kSelectBins = 2048;
/// What one block needs for itself while it measures or selects; in the GPU's memory.
struct Scratch {
  Measured* measured;   ///< of each chunk
  float* factors;       ///< of each part
  Selection* selected;  ///< of each part
  ChunkCount* counts;   ///< of each chunk
  std::uint32_t* bins;  ///< kSelectBins of each part, zeros
};

/// Codecs whose frames are gathered, every value in few bits.
enum class Form : int { int8, onebit, ef_sign, signsgd, terngrad, qsgd, natural };
struct FormSettings {
  Form form;
  int bits;           ///< of a level, qsgd
  std::uint64_t key;  ///< of this worker's draws in this step; with a part's offset, its key
};
/// @param values become values + residual, where there is one; what is left of them after what the
/// frame says becomes the residual
const char* encode_form(const FormSettings& settings, float* values, float* residual,
                        const MessageTable& table, const Scratch& scratch, std::uint8_t* frame,
                        void* stream);
/// @param frames of all ranks, one behind the other, `stride` bytes apart
/// @param values become the sum over the ranks, in their order
const char* decode_form(const FormSettings& settings, const std::uint8_t* frames,
                        std::size_t stride, int ranks, const MessageTable& table, float* values,
                        void* stream);

/// 16 bits, bfloat16 or float16. `residual` as above; nullptr: none.
const char* shorten(bool bfloat16, float* values, float* residual, std::size_t count,
                    std::uint16_t* frame, void* stream);
const char* lengthen(bool bfloat16, const std::uint16_t* frame, std::size_t count, float* values,
                     void* stream);

/// DGC: what waits to be sent becomes the values.
struct Correction {
  float* momentum;  ///< of every element; nullptr: no correction
  float factor;     ///< of it
  double most;      ///< of a part's norm; 0 = no limit
};
/// Of each part the `kept` values of largest magnitude, of equals the first: places, then values.
const char* encode_largest(float* values, float* residual, const Correction& correction,
                           const MessageTable& table, const Scratch& scratch, std::uint32_t* frame,
                           void* stream);
/// @param values become the sum over the ranks, in their order; places beyond a part are left out
const char* decode_sparse(const std::uint32_t* frames, std::size_t stride, int ranks,
                          const MessageTable& table, float* values, void* stream);

/// The values at places that all workers draw alike.
/// @param key of the step, the same on all
/// @param scaled each is divided by its chance of being drawn
const char* encode_drawn(float* values, float* residual, bool scaled, std::uint64_t key,
                         const MessageTable& table, float* frame, void* stream);
const char* decode_drawn(const float* frame, std::uint64_t key, const MessageTable& table,
                         float* values, void* stream);

/// Low rank, around two sums: left factors (or the values of what is not factored), right factors.
struct Factors {
  int rank;
  float* left;   ///< the message's, by PartRow::left
  float* right;  ///< by PartRow::right: the last sum, or what is drawn before the first
};
/// Columns of right factors are drawn: those that hold nothing, or all.
const char* draw_right(const Factors& factors, bool all, std::uint64_t key,
                       const MessageTable& table, void* stream);
const char* encode_left(float* values, const float* residual, const Factors& factors,
                        const MessageTable& table, void* stream);
/// The left sums become orthonormal; `right` becomes this worker's.
const char* encode_right(const float* values, const Factors& factors, const MessageTable& table,
                         void* stream);
/// @param share 1 / workers
const char* decode_factors(float* values, float* residual, float share, const Factors& factors,
                           const MessageTable& table, void* stream);

}  // namespace dynamiccl::kernels
