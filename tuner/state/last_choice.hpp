#pragma once

#include <array>

#include "tuner/action/action_space.hpp"

namespace dynamiccl {

/// State::last_choice of an action: places of algorithm and protocol among their knob's values
/// (0 = the default, 1 = the last), log2 of channels / 8 and of threads / 16; 0 where the space has
/// no such knob.
std::array<double, 4> last_choice_of(const ActionSpace& space, const Action& action);

}  // namespace dynamiccl
