#pragma once

// Debian's libtorch-dev ships c10d/reducer.hpp without the header that it includes. This declares
// what that one needs of it: a type for a pointer that is null where no distributed autograd runs.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
