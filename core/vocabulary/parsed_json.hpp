#pragma once

#include <string_view>

#include "core/vocabulary/json.hpp"

// Every JSON text is read by these: the library reads any depth, but copies, compares and writes
// what it read by recursion, and a few hundred thousand brackets in a file end the program there.
namespace dynamiccl {

/// As TOML's reader has it. Ours need less than twenty.
inline constexpr int kMostNestedJson = 256;

/// @throws nlohmann::json::exception when it is no JSON, or nested deeper than kMostNestedJson
nlohmann::json parsed_json(std::string_view text);

/// The same; a discarded value instead of an exception.
nlohmann::json json_or_discarded(std::string_view text);

}  // namespace dynamiccl
