#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// The commands of a stored command line, their words quoted for a shell: one, or one for each rank
/// where ranks start singly. Those are stored as one list with "&" between them.
/// @returns none for what is no list
std::vector<std::vector<std::string>> stored_commands(const nlohmann::json& argv);

/// The same in one line, as a shell takes it: "worker 0 & worker 1".
/// @returns the text itself where it is no list
std::string stored_command_line(const std::string& argv_json);

}  // namespace dynamiccl
