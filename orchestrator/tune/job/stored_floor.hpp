#pragma once

#include "db/reader.hpp"
#include "tuner/guards/gloo_floor.hpp"

namespace dynamiccl {

/// What launches in the database measured of Gloo's default, without any setting of it.
GlooTimes stored_gloo_times(const Reader& reader);

}  // namespace dynamiccl
