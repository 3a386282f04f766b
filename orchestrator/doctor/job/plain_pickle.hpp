#pragma once

#include <string>
#include <string_view>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What a pickle of plain types holds: None, truth values, numbers, strings, lists, tuples and sets
/// (as arrays) and dictionaries (as objects; keys become strings). Nothing is executed: an opcode
/// that would import, call or build is refused, and so is what is nested too deep or becomes too
/// large by references to itself.
/// @param left_out values of dictionaries' keys of this name are read as null
/// @throws Error(input) that says where, without the file's name
nlohmann::json read_plain_pickle(std::string_view bytes, std::string_view left_out = {});

}  // namespace dynamiccl
