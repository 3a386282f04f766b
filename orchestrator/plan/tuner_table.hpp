#pragma once

#include <string>

#include "core/training/training.hpp"

namespace dynamiccl {

/// Why the table that a training cell names cannot be followed over this backend; empty when it
/// can, or none is named. Reads the file.
std::string table_misfit(const TrainingSpec& spec, Backend backend);

}  // namespace dynamiccl
