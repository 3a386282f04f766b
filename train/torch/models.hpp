#pragma once

#include <torch/nn.h>

#include <functional>
#include <vector>

#include "train/spec/training.hpp"

namespace dynamiccl {

/// A model as an ordered list of stages: C++ modules have no hook before their forward, so whoever
/// must wait for a stage's weights waits before he calls it.
struct StagedModel {
  struct Stage {
    std::function<torch::Tensor(torch::Tensor)> forward;
    std::vector<torch::Tensor> parameters;  ///< those read here first
  };
  std::vector<Stage> stages;
  std::vector<std::shared_ptr<torch::nn::Module>> owners;  ///< of the stages, in their order
};

StagedModel make_image_model(TrainingModel model);
StagedModel make_bert(TrainingModel model);

}  // namespace dynamiccl
