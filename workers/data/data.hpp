#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/work_settings.hpp"

namespace dynamiccl {

/// Input values of one cell in one launch: a counter-based hash of (key, rank, index) gives small
/// non-negative integers, so that the sum over all ranks is exact in the datatype whatever the
/// order of additions. Verification is therefore bitwise equality, tolerance 0.
class DataSource {
 public:
  /// @param key mixed from the launch's seed and the cell's id
  DataSource(std::uint64_t key, DataType type, int ranks, ReduceOp op = ReduceOp::sum);

  /// Integers at least this many ranks' sums of which stay exact; below 2 the data would be zeros.
  /// @returns number of different values, 0..range-1
  [[nodiscard]] std::uint32_t range() const { return range_; }
  [[nodiscard]] DataType type() const { return type_; }
  [[nodiscard]] ReduceOp op() const { return op_; }
  /// Least value: a product of zeros would show nothing.
  [[nodiscard]] std::uint32_t least() const { return op_ == ReduceOp::prod ? 1 : 0; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] std::uint64_t key() const { return key_; }

  /// Writes elements first..first+count-1 of the rank's input.
  void fill(void* out, int rank, std::uint64_t first, std::size_t count) const;

  /// Adds the values of elements first..first+count-1 of `rank` to `sums`; first and count need no
  /// alignment.
  void add_values(std::uint32_t* sums, int rank, std::uint64_t first, std::size_t count) const;

 private:
  std::uint64_t key_;
  DataType type_;
  int ranks_;
  std::uint32_t range_;
  ReduceOp op_;
};

/// Stirs a launch's seed and a cell's id into a DataSource key.
std::uint64_t data_key(std::uint64_t seed, const std::string& cell_id);

/// A stretch of an output buffer and what it must hold: the sum (or another DataSource::op) over
/// some ranks of their inputs' elements first, first+1, ...
struct ExpectedPart {
  std::size_t offset = 0;  ///< elements into the output
  std::size_t count = 0;
  std::uint64_t first = 0;  ///< index into the ranks' inputs
  int first_rank = 0;       ///< ranks first_rank..last_rank contribute, without skipped_rank
  int last_rank = 0;
  int skipped_rank = -1;
};

struct DataVerdict {
  std::uint64_t checked = 0;
  std::uint64_t wrong = 0;
  std::string first_wrong;  ///< "element 17 is 5 but must be 7"; empty when none is wrong
  DataVerdict& operator+=(const DataVerdict& other);
};

/// "element 17 is 5 but must be 7" for element `index` of a part; `got` is that element.
std::string describe_wrong(const DataSource& source, const ExpectedPart& part, std::size_t index,
                           const void* got);

/// Compares every element, bit by bit.
DataVerdict verify(const DataSource& source, const void* out,
                   const std::vector<ExpectedPart>& parts);

/// Fills with bytes no correct result contains.
void poison(void* out, std::size_t bytes);

}  // namespace dynamiccl
