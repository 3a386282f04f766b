#include "orchestrator/cli/help_lines.hpp"

#include <utility>

#include "core/vocabulary/terminal_lines.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

std::string HelpLines::make_help(const CLI::App* app, std::string name,
                                 CLI::AppFormatMode mode) const {
  constexpr std::size_t kNarrowest = 40;  // below that a terminal's own breaks read better
  // A mode's help begins with its own name, which its usage goes on with: CLI11 knows verbs alone.
  const auto& about = app->get_description();
  const auto mode_name = about.substr(0, about.find(": "));
  if (mode_name.starts_with(app->get_name() + " ") && mode_name.size() < about.size())
    name += mode_name.substr(app->get_name().size());
  const auto text = CLI::Formatter::make_help(app, std::move(name), mode);
  const auto columns = stdout_columns();
  return columns < kNarrowest ? text : broken_text(text, columns);
}

}  // namespace dynamiccl
