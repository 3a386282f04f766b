#include "workers/train/sgd.hpp"

namespace dynamiccl {

void sgd_update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    velocity[i] = sgd.momentum * velocity[i] + gradient[i] * scale;
    weight[i] -= sgd.rate * velocity[i];
  }
}

void draw(float* weight, const float* to, float part, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) weight[i] -= part * (weight[i] - to[i]);
}

}  // namespace dynamiccl
