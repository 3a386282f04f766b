#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"
#include "orchestrator/tune/tuning.hpp"
#include "tuner/agents/places.hpp"

namespace dynamiccl {

/// What runs in a database measured of several settings of a cell, its default among them. A place
/// is an environment of it.
std::vector<PlacedCell> stored_places(const Reader& reader);

/// What was measured elsewhere: in the file `named` ("" = the one that comes along) and in the
/// database.
std::vector<PlacedCell> known_places(const std::string& named, const Reader& reader);

/// Starts the plan's tasks from what was measured elsewhere.
/// @returns from where it was drawn, for people
std::string start_from_places(TunePlan& plan, const Experiment& experiment,
                              const std::vector<PlacedCell>& cells);

/// How far what other places said was right of the settings that fresh launches compared with the
/// default; "" where nothing was drawn or compared.
std::string judged_places(const TunePlan& plan, const TuningResult& result);

}  // namespace dynamiccl
