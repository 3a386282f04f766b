#pragma once

#include <set>
#include <string>
#include <string_view>

#include "orchestrator/tune/job/job_trial.hpp"

namespace dynamiccl {

/// "12.3 ms".
std::string milliseconds(double us);
/// The last line that says something, its beginning where it is long.
std::string last_line(const std::string& text);
/// What containers of the ranks need for the library of one host.
std::string preload_flags(const JobCommand& command);
/// Names of a library's variables that the user sets himself, by environment or file.
std::set<std::string> users_variables(Backend library);
/// A variable of this process; "": it has none.
std::string variable_here(std::string_view name);

}  // namespace dynamiccl
