#pragma once

#include <cstddef>

namespace dynamiccl {

/// Stochastic gradient descent with momentum: v = momentum v + scale g; w = w - rate v. One place,
/// so that workers, servers and the sequential oracle round alike in host memory; on a GPU the
/// tensor library's fused update rounds in places of its own.
struct Sgd {
  float rate = 0;
  float momentum = 0;
};

/// @param scale of `gradient`: 1 / workers for a sum
void sgd_update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
                std::size_t count);

/// LARS (You et al. 2017): by what a layer's gradient is scaled, so that the mean over workers is
/// `trust` times as long as the layer's weights; `scale` where either is 0.
float lars_scale(double trust, const float* weight, const float* gradient, float scale,
                 std::size_t count);

/// Weights go this part of their way to others (EASGD).
void draw(float* weight, const float* to, float part, std::size_t count);

}  // namespace dynamiccl
