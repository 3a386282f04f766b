#include "orchestrator/cli/help_lines.hpp"

#include <utility>

#include "core/vocabulary/terminal_lines.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

std::string HelpLines::make_help(const CLI::App* app, std::string name,
                                 CLI::AppFormatMode mode) const {
  constexpr std::size_t kNarrowest = 40;  // below that a terminal's own breaks read better
  const auto text = CLI::Formatter::make_help(app, std::move(name), mode);
  const auto columns = stdout_columns();
  return columns < kNarrowest ? text : broken_text(text, columns);
}

}  // namespace dynamiccl
