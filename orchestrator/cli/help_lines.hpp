#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace dynamiccl {

/// Help in lines of the terminal's width, of 100 columns where stdout is none.
class HelpLines : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace dynamiccl
