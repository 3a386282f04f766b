#pragma once

#include <string>

#include "train/data/dataset.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Do all ranks train this cell, and on the same data? Ranks: all.
/// @param refusal why this rank cannot; empty when it can
/// @param opened what it would train on; nullptr where that was agreed on before, and on servers
/// @returns why no rank trains it, empty when all do: this rank's reason, else that of the first
/// rank that has one, or both digests where two ranks hold different files
std::string agreed_refusal(Communicator& comm, const std::string& refusal, const Dataset* opened);

}  // namespace dynamiccl
