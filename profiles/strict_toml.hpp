#pragma once

#include <string>

#include "profiles/toml_parser.hpp"

namespace dynamiccl {

/// Refuses a key or [header] of more parts than any of ours: what walks such a tree, toml++ itself
/// among them, calls itself once per part. @throws Error(input) as parse_toml
void check_key_parts(const std::string& text, const std::string& source);

/// Parses TOML. @throws Error(input) as `source:line:col: ...`
toml::table parse_toml(const std::string& text, const std::string& source);

/// Reads a whole file. @throws Error(input) when it cannot be read or is larger than 16 MiB
std::string read_input_file(const std::string& path);

}  // namespace dynamiccl
