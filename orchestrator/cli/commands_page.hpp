#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dynamiccl {

/// `help --markdown`: every verb of the command table with its arguments and options, so that a new
/// one is documented without further work.
std::string commands_markdown(const CLI::App& app);

}  // namespace dynamiccl
