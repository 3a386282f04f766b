#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "train/step/learner.hpp"

namespace dynamiccl {

/// @param engaged true while the engine lives
std::unique_ptr<DataParallelEngine> make_engine(EngineGroup& group,
                                                const std::vector<torch::Tensor>& parameters,
                                                Bytes bucket, bool& engaged);

}  // namespace dynamiccl
