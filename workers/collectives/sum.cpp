#include "workers/collectives/sum.hpp"

#include <bit>
#include <cstdint>

namespace dynamiccl {
namespace {

// The same loop compiled twice: for the machine's wide vectors and for any machine. A plain
// target_clones would need a resolver that sanitizers break.
#if defined(__x86_64__)
#define DYN_WIDE __attribute__((target("avx2,f16c")))
const bool kWide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
#define DYN_WIDE
const bool kWide = true;
#endif

struct Bfloat16 {
  std::uint16_t bits;
};

inline Bfloat16 add(Bfloat16 a, Bfloat16 b) {
  const auto widen = [](Bfloat16 v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v.bits) << 16);
  };
  const std::uint32_t sum = std::bit_cast<std::uint32_t>(widen(a) + widen(b));
  // Round to nearest even; a NaN must not round up into infinity.
  if ((sum & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((sum >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((sum + 0x7FFFU + ((sum >> 16) & 1U)) >> 16)};
}
inline float add(float a, float b) { return a + b; }
inline double add(double a, double b) { return a + b; }
// Unsigned, as a training sum may wrap and must not be undefined then.
inline std::uint32_t add(std::uint32_t a, std::uint32_t b) { return a + b; }
inline _Float16 add(_Float16 a, _Float16 b) {
  return static_cast<_Float16>(static_cast<float>(a) + static_cast<float>(b));
}

template <class T>
__attribute__((always_inline)) inline void sum_loop(void* out, const void* a, const void* b,
                                                    std::size_t count) {
  auto* o = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) o[i] = add(x[i], y[i]);
}

template <class T>
DYN_WIDE void sum_wide(void* out, const void* a, const void* b, std::size_t count) {
  sum_loop<T>(out, a, b, count);
}

template <class T>
void sum_any(void* out, const void* a, const void* b, std::size_t count) {
  if (kWide) {
    sum_wide<T>(out, a, b, count);
  } else {
    sum_loop<T>(out, a, b, count);
  }
}

}  // namespace

void sum_elements(void* out, const void* a, const void* b, std::size_t count, DataType type) {
  switch (type) {
    case DataType::float32:
      return sum_any<float>(out, a, b, count);
    case DataType::float64:
      return sum_any<double>(out, a, b, count);
    case DataType::int32:
      return sum_any<std::uint32_t>(out, a, b, count);
    case DataType::float16:
      return sum_any<_Float16>(out, a, b, count);
    case DataType::bfloat16:
      return sum_any<Bfloat16>(out, a, b, count);
  }
}

}  // namespace dynamiccl
