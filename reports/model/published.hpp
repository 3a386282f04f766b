#pragma once

#include "profiles/published/reference.hpp"
#include "profiles/published/training_studies.hpp"

namespace dynamiccl {

/// The published figures that this program carries.
const ReferenceFigures& published_figures();

/// What the studies publish of training, as this program carries it.
const TrainingStudies& training_studies();

}  // namespace dynamiccl
