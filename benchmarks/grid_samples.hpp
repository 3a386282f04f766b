#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"
#include "tuner/search/replay.hpp"

namespace dynamiccl {

/// An ordinary run over settings as something that agents can search: what differs between cells of
/// the same work (algorithm, knobs of launches and of calls) are the arms, the cell with all of
/// them left alone is the default. Cells of which the default was not measured are left out, and so
/// is work with one setting alone.
/// @param run_id full id; @throws Error(input) when the run measured no such grid
std::vector<SampledTask> load_grid(const Reader& reader, const std::string& run_id);

/// The newest run of an experiment of this name. @throws Error(input) when the database has none
std::string find_run(const Reader& reader, const std::string& experiment_name);

}  // namespace dynamiccl
