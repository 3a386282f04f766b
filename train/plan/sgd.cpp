#include "train/plan/sgd.hpp"

#include <cmath>

namespace dynamiccl {
namespace {

double length_of(const float* values, std::size_t count) {
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += double{values[i]} * values[i];
  return std::sqrt(squares);
}

}  // namespace

void sgd_update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    velocity[i] = sgd.momentum * velocity[i] + gradient[i] * scale;
    weight[i] -= sgd.rate * velocity[i];
  }
}

float lars_scale(double trust, const float* weight, const float* gradient, float scale,
                 std::size_t count) {
  const double weights = length_of(weight, count);
  const double gradients = length_of(gradient, count);
  if (!(weights > 0) || !(gradients > 0)) return scale;
  return static_cast<float>(trust * weights / gradients);
}

void draw(float* weight, const float* to, float part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) weight[i] -= part * (weight[i] - to[i]);
}

}  // namespace dynamiccl
