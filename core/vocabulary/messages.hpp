#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace dynamiccl {

/// Text without what would steer a terminal: control characters but line break and tab become
/// visible ("\\x1b"). What other programs wrote and databases hold is shown only so.
std::string printable(std::string_view text);

/// Writes a message to stderr or another stream and flushes it. Never throws and never fails: a run
/// whose terminal is gone or whose log's disk is full goes on.
void tell(std::string_view text, std::FILE* out = stderr) noexcept;

/// Opens what of stdin, stdout and stderr is closed, so that no file opened later takes its number
/// and is written to as if it were it. Writing to a stdout that was closed still fails. Called
/// first in a program.
void open_standard_streams();

}  // namespace dynamiccl
