#pragma once

#include <string>

#include "db/reader.hpp"

namespace dynamiccl {

/// What `run` prints at its end: a table per operation with medians, intervals and each
/// environment's ratio to bare metal, the method under each, then failures and what is unsupported.
/// @param run_id as Reader::resolve_run takes it
std::string render_answer(const Reader& reader, const std::string& run_id);

}  // namespace dynamiccl
