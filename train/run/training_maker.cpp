#include "train/run/training_run.hpp"

namespace dynamiccl {

MakeTraining training_maker() { return make_training_run; }

}  // namespace dynamiccl
