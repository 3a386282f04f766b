#pragma once

#include "core/vocabulary/units.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

/// After which a rank that owes something, and of which nothing but silence is known, is taken for
/// lost: so long that neither a slow worker nor a slow link is.
/// @param compute a step of one worker without communication
Micros longest_silence(const TrainingSpec& spec, int workers, Micros compute);

/// After which no other rank can be at this cell's work any more, however slow it is: besides a
/// silence the comparison with one process, for which servers wait.
Micros longest_wait(const TrainingSpec& spec, int workers, Micros compute);

}  // namespace dynamiccl
