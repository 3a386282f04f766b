#pragma once

#include <cstddef>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// out[i] = a[i] + b[i] for `count` elements of `type`, 16-bit floats rounded to nearest even.
/// `out` may be `a` or `b`, otherwise the ranges must not overlap. Thread-safe.
void sum_elements(void* out, const void* a, const void* b, std::size_t count, DataType type);

}  // namespace dynamiccl
