#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dynamiccl {

/// The whole program: parses the command line, runs the verb, prints errors on stderr.
/// @param argv with the program's name first
/// @returns the exit code
int run_command_line(const std::vector<std::string>& argv);

/// The line that tells an error of the file system, with all the places it is about.
std::string of_places(const std::filesystem::filesystem_error& error);

}  // namespace dynamiccl
