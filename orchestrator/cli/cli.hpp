#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// The whole program: parses the command line, runs the verb, prints errors on stderr.
/// @param argv with the program's name first
/// @returns the exit code
int run_command_line(const std::vector<std::string>& argv);

}  // namespace dynamiccl
