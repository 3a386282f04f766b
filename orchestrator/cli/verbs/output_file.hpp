#pragma once

#include <string>

namespace dynamiccl {

/// Writes what a verb was asked to write, whole or not at all: a file that is there stays as it is
/// until the new one is complete. Pipes and devices are written to directly.
/// @param option  that named the path, for the message: "--out"
/// @param private_as  a file: who may not read it may not read what is written either
/// @throws Error(input) where the path is a database, whatever its name, cannot be written, or has
///     a name that another user made in a folder of everybody
void write_output(const std::string& path, const std::string& text, const std::string& option,
                  const std::string& private_as = "");

/// For paths that stand in files with a variable a line, which jobs load.
/// @throws Error(input) for one with a control character
void require_one_line(const std::string& option, const std::string& path);

}  // namespace dynamiccl
