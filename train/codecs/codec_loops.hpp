#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/codecs/random_words.hpp"

namespace dynamiccl {

/// Encoding of a gradient's values into a frame, and adding of a frame's values to a sum. Frames
/// have no alignment and the byte order of the machine. What an encode_ function returns are the
/// frame's bytes; `scale` of an add_ function is 1, or -1 to take the values away. Rounding does
/// not depend on the machine's vectors: every rank gets the same bits of the same frame.

std::size_t encode_float16(const float* values, std::size_t count, std::uint8_t* frame);
void decode_float16(const std::uint8_t* frame, std::size_t count, float* values);
/// To the nearest, even.
std::size_t encode_bfloat16(const float* values, std::size_t count, std::uint8_t* frame);
void decode_bfloat16(const std::uint8_t* frame, std::size_t count, float* values);

/// The largest magnitude becomes 127.
std::size_t encode_int8(const float* values, std::size_t count, std::uint8_t* frame);
void add_int8(const std::uint8_t* frame, std::size_t count, float scale, float* sum);

/// Mean of the values that are not negative, mean of those that are, a bit for each.
std::size_t encode_onebit(const float* values, std::size_t count, std::uint8_t* frame);
void add_onebit(const std::uint8_t* frame, std::size_t count, float scale, float* sum);
/// Mean magnitude, a bit for each.
std::size_t encode_scaled_signs(const float* values, std::size_t count, std::uint8_t* frame);
void add_scaled_signs(const std::uint8_t* frame, std::size_t count, float scale, float* sum);
/// A bit for each: 1 where it is negative.
std::size_t encode_signs(const float* values, std::size_t count, std::uint8_t* frame);
void add_signs(const std::uint8_t* frame, std::size_t count, float scale, float* sum);
/// Sums of signs become what most of `workers` say, that many times; 0 where they are as many.
void take_vote(float* sum, std::size_t count, int workers);

/// 0 or the largest magnitude with its sign (values beyond 2.5 standard deviations are cut there),
/// so that the expected value is the value. Random numbers depend on `key` alone.
std::size_t encode_ternary(const float* values, std::size_t count, std::uint32_t key,
                           std::uint8_t* frame);
void add_ternary(const std::uint8_t* frame, std::size_t count, float scale, float* sum);
/// Levels of the norm of kQsgdBucket neighbours, rounded at random.
/// @param bits of a value: 2, 4 or 8
std::size_t encode_levels(const float* values, std::size_t count, int bits, std::uint32_t key,
                          std::uint8_t* frame);
void add_levels(const std::uint8_t* frame, std::size_t count, int bits, float scale, float* sum);
/// Powers of two, rounded at random; what is below 2^-126 of the largest becomes 0.
std::size_t encode_powers(const float* values, std::size_t count, std::uint32_t key,
                          std::uint8_t* frame);
void add_powers(const std::uint8_t* frame, std::size_t count, float scale, float* sum);

/// The `kept` values of the largest magnitude, of equals the first: their places in order, then
/// the values.
std::size_t encode_largest(const float* values, std::size_t count, std::size_t kept,
                           std::uint8_t* frame);
/// Those of at least this magnitude: how many, their places in order, the values.
std::size_t encode_above(const float* values, std::size_t count, float least, std::uint8_t* frame);
/// STC: the largest as their sign and mean magnitude: the mean, the places, a bit for each.
std::size_t encode_sparse_ternary(const float* values, std::size_t count, std::size_t kept,
                                  std::uint8_t* frame);
/// Of such a frame. @throws Error(data) for a place beyond `count`
void add_signed_places(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                       float* sum);
/// SBC: of the largest that are positive and the largest that are negative those with the larger
/// mean: the mean, with its sign, and the places.
std::size_t encode_sparse_binary(const float* values, std::size_t count, std::size_t kept,
                                 std::uint8_t* frame);
/// Of such a frame. @throws Error(data) for a place beyond `count`
void add_places(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                float* sum);
/// 3LC: -1, 0 or 1 times the largest magnitude, to the nearest; five of them in a byte of base 3,
/// runs of zeros in one: how many bytes follow, the largest magnitude, the bytes.
std::size_t encode_three_levels(const float* values, std::size_t count, std::uint8_t* frame);
void add_three_levels(const std::uint8_t* frame, std::size_t count, float scale, float* sum);
/// AdaComp: of each bin of kAdaBin values those that with one more gradient would reach the bin's
/// largest, as their sign and the mean of the bins' largest: how many, the mean, places, signs.
/// @param values residual and gradient
/// @param residual what was kept back before
std::size_t encode_binned(const float* values, const float* residual, std::size_t count,
                          std::uint8_t* frame);
/// Places and values; what lies beyond `count` is refused.
/// @throws Error(data)
void add_sparse(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                float* sum);
/// How many values a frame of encode_above() has.
std::size_t sparse_kept(const std::uint8_t* frame);

/// A value of a sparse frame.
struct PlacedValue {
  std::uint32_t place = 0;
  float value = 0;
};
/// gTop-k's tree: whose frame a worker's goes into (the first one's into nobody's), and whose come
/// into its own, in this order.
int merge_parent(int worker);
std::vector<int> merge_children(int worker, int workers);
/// gTop-k: of the sum of two frames of encode_largest() the `kept` largest, of equals the first,
/// into `lower`; the others are appended to `dropped`.
void merge_largest(std::uint8_t* lower, const std::uint8_t* upper, std::size_t kept,
                   std::vector<PlacedValue>& dropped);
/// What a worker sent and is not in what all merged into goes back to its residual.
void keep_lost(const std::uint8_t* own, const std::uint8_t* merged, std::size_t kept,
               float* residual);
/// What was dropped where others' values of the same place won is nobody's loss but who dropped
/// it: it goes to that one's residual.
void keep_dropped(std::vector<PlacedValue>& dropped, const std::uint8_t* merged, std::size_t kept,
                  float* residual);

/// Count sketch of kSketchRows rows: cells of one behind the other's.
void sketch_values(const float* values, std::size_t count, std::size_t columns, std::uint32_t key,
                   float* cells);
/// Largest magnitude; infinite where one is infinite or no number.
float largest_cell(const float* cells, std::size_t count);
/// Cells become whole numbers of 32 bits, whose sums are the same in any order.
/// @param bound of all workers' sums of a cell; where it is infinite, cells become 1 that are no
/// numbers and 0 that are: sums show where those values are, which then go to all
void fix_cells(float* cells, std::size_t count, double bound);
/// The `kept` places that seem largest in the sum of fixed sketches (median of the rows), in order.
void heavy_places(const std::uint8_t* sums, std::size_t count, std::size_t columns,
                  std::uint32_t key, std::size_t kept, std::vector<std::uint32_t>& places);

/// left = matrix x right: `rank` columns of `rows` from `rank` rows of `columns`, all column by
/// column.
void multiply(const float* matrix, std::size_t rows, std::size_t columns, const float* right,
              std::size_t rank, float* left);
/// right = transposed matrix x left.
void multiply_transposed(const float* matrix, std::size_t rows, std::size_t columns,
                         const float* left, std::size_t rank, float* right);
/// matrix = left x transposed right.
void outer_product(const float* left, const float* right, std::size_t rows, std::size_t columns,
                   std::size_t rank, float* matrix);
/// Gram-Schmidt over columns; a column that has nothing of its own becomes 0.
void orthonormalise(float* columns, std::size_t rows, std::size_t rank);

/// Euclidean norm.
double norm(const float* values, std::size_t count);

}  // namespace dynamiccl
