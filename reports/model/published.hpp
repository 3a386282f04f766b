#pragma once

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// profiles/published/figures.toml, which this program carries: by study and table, what studies
/// published. For the query `published` and for what a survey says of a setting.
const nlohmann::json& published_figures();

}  // namespace dynamiccl
