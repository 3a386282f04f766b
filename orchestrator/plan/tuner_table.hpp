#pragma once

#include <string>

#include "train/spec/training.hpp"

namespace dynamiccl {

/// Why the table that a training cell names cannot be followed over this backend; empty when it
/// can, or none is named. Reads the file.
std::string table_misfit(const TrainingSpec& spec, Backend backend);

/// Digest of what the table that a training cell names says: another table under the same name is
/// another thing to measure. "" when none is named or it cannot be read (table_misfit says why).
std::string table_digest(const TrainingSpec& spec);

}  // namespace dynamiccl
