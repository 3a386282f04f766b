#pragma once

#include <string>

#include "core/vocabulary/json.hpp"
#include "db/reader.hpp"

namespace dynamiccl {

/// `show RUN --trace CELL`: one stored step of a training cell as a document of Chrome's trace
/// events (chrome://tracing, https://ui.perfetto.dev): "X" events of all ranks of the launch with
/// the median step, pid = rank, tid 0 computing and tid 1 communicating, ts and dur in microseconds
/// on rank 0's clock from the first event on.
/// @param run as Reader::resolve_run takes it
/// @param cell the beginning of its id, or its method where the run has one cell of it
/// @throws Error(input) where it names none or several, or one whose launch kept no trace; the
/// message lists the cells that have one
nlohmann::json step_trace(const Reader& reader, const std::string& run, const std::string& cell);

}  // namespace dynamiccl
