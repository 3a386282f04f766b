#pragma once

#include "tuner/state/state_vocabulary.hpp"

namespace dynamiccl {

/// The meaning of `rate` is fixed per method:
///   none, fp16      unused
///   quantised       bits per value, 1 to 32
///   sign            unused: one bit per value
///   top_k, random_k kept fraction of the values, (0, 1]
///   low_rank, atomo, other  wire bytes / nominal bytes, > 0
/// @returns wire bytes / nominal bytes of 32-bit values, without headers; top-k sends an index and
/// a value of 4 bytes each, hence 2 * rate
/// @throws Error(input) when the rate is out of its method's range
double wire_fraction(Compression method, double rate);

}  // namespace dynamiccl
