#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// A short-lived tool (docker, apptainer, ip, tc): never a rank.
struct CommandOptions {
  std::chrono::milliseconds timeout{60000};
  std::map<std::string, std::string> environment;  ///< added to this process's own
  std::string input_file = {};                     ///< its stdin; "" = /dev/null
  std::string output_file;  ///< stdout and stderr are appended to it instead of being captured
  /// Asked ten times a second while it runs; true ends the command (TERM to its process group, then
  /// KILL). nullptr = not asked: what cleans up must come to its end.
  bool (*interrupted)() = nullptr;
};

struct CommandResult {
  int exit_code = 0;  ///< 128 + signal when a signal ended it
  bool timed_out = false;
  bool interrupted = false;
  std::string out;
  std::string err;
};

/// Runs argv in a process group of its own without a shell until it ends or
/// the timeout kills the group. A Ctrl-C at the terminal does not reach it, so that cleaning up is
/// not cut short: only options.interrupted ends it early.
/// @throws Error(environment) when the program cannot be started
CommandResult run_command(const std::vector<std::string>& argv, const CommandOptions& options = {});

/// @returns stdout without its last line ends
/// @throws Error(environment) `what: COMMAND failed: its last lines of stderr` unless it exits with
/// 0
std::string checked_output(const std::string& what, const std::vector<std::string>& argv,
                           const CommandOptions& options = {});

/// What checked_output throws for a command that did not end well: an Error(environment).
Error command_failure(const std::string& what, const std::vector<std::string>& argv,
                      const CommandOptions& options, const CommandResult& result);

/// Absolute path of a program on PATH (or in /usr/sbin, /sbin), "" when there is none.
std::string find_program(const std::string& name);

/// argv as one line a person can paste into a shell.
std::string command_line(const std::vector<std::string>& argv);
/// The same line for /bin/sh, whatever a user's login shell is: csh ends a quote with its line and
/// looks for "!" in it, fish reads backslashes there.
std::string login_shell_line(const std::string& line);

}  // namespace dynamiccl
