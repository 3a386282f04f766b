#include "workers/run/training.hpp"

namespace dynamiccl {

MakeTraining training_maker() { return nullptr; }

}  // namespace dynamiccl
