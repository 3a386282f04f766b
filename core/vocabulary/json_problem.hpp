#pragma once

#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What a JSON document lacks, without the library's own words: "no JSON from line 2, column 5 on",
/// "no JSON from column 5 on" in its first line; of a value, "type must be number, but is string".
std::string json_problem(const nlohmann::json::exception& error);

}  // namespace dynamiccl
