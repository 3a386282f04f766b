#include "tuner/state/wire_fraction.hpp"

#include <fmt/format.h>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

double checked(double rate, double low, double high, Compression method, const char* meaning) {
  if (rate > low && rate <= high) return rate;
  throw Error(ErrorKind::input,
              fmt::format("compression {}: rate {} is not in ({}, {}]; it means {}",
                          name_of(method), rate, low, high, meaning));
}

}  // namespace

double wire_fraction(Compression method, double rate) {
  switch (method) {
    case Compression::none:
      return 1.0;
    case Compression::fp16:
      return 0.5;
    case Compression::quantised:
      return checked(rate, 0, 32, method, "bits per value") / 32;
    case Compression::sign:
      return 1.0 / 32;
    case Compression::top_k:
      return 2 * checked(rate, 0, 1, method, "the kept fraction");
    case Compression::random_k:
      return checked(rate, 0, 1, method, "the kept fraction");
    case Compression::low_rank:
    case Compression::atomo:
    case Compression::other:
      return checked(rate, 0, 4, method, "wire bytes / nominal bytes");
  }
  throw Error(ErrorKind::bug, "compression without a size on the wire");
}

}  // namespace dynamiccl
