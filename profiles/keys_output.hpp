#pragma once

#include <string>

#include "core/vocabulary/json.hpp"
#include "profiles/keys.hpp"

namespace dynamiccl {

/// JSON Schema (draft 7) of a table by its keys, without "$schema".
nlohmann::ordered_json json_schema(const TableKeys& keys);

/// The keys as Markdown: a section per table, a row per key.
/// @param top what the keys before the first [table] are headed
std::string keys_markdown(const TableKeys& keys, const std::string& top);

}  // namespace dynamiccl
