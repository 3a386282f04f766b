#include <cstdlib>

#include "train/step/worker_step.hpp"

namespace dynamiccl {

#ifdef DYNAMICCL_TRAINING_FAULTS
bool planted_fault(std::string_view name) {
  static const char* const named = std::getenv("DYNAMICCL_TRAINING_FAULT");
  return named != nullptr && name == named;
}
#else
bool planted_fault(std::string_view /*name*/) { return false; }
#endif

}  // namespace dynamiccl
