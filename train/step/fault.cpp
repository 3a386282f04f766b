#include <cstdlib>
#include <string_view>

#include "train/step/worker_step.hpp"

namespace dynamiccl {

PlantedFault planted_fault() {
#ifdef DYNAMICCL_TRAINING_FAULTS
  static const PlantedFault fault = [] {
    const char* text = std::getenv("DYNAMICCL_TRAINING_FAULT");
    const std::string_view name = text == nullptr ? "" : text;
    return PlantedFault{
        name == "drop-gradient",   name == "skip-last-update", name == "off-by-one-bit",
        name == "skip-local-step", name == "drop-neighbour",   name == "exceed-bound",
        name == "use-twice",       name == "drop-residual",    name == "shift-place",
        name == "other-seed",      name == "out-of-turn",      name == "forget-slow-momentum",
        name == "equal-share",     name == "swap-factors",     name == "send-nothing",
        name == "keep-rounds",     name == "stay-away",        name == "leave-group",
        name == "forget-switch",   name == "uninvited",        name == "forget-lost",
        name == "other-layer",     name == "early-rate"};
  }();
  return fault;
#else
  return {};
#endif
}

}  // namespace dynamiccl
