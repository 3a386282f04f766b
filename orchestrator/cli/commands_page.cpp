#include "orchestrator/cli/commands_page.hpp"

#include <fmt/format.h>

namespace dynamiccl {
namespace {

/// `-q,--quiet`, `--db TEXT`, `[FILE]`; words of which one is taken stand in place of the type.
std::string spelled(const CLI::Option& option) {
  if (option.get_positional()) {
    const std::string name = option.get_name(true);
    return option.get_required() ? name : fmt::format("[{}]", name);
  }
  const std::string name = option.get_name(false, true);
  return option.get_items_expected_max() > 0 ? fmt::format("{} {}", name, option.get_type_name())
                                             : name;
}

std::string markdown_of(const CLI::App& verb) {
  std::string out = fmt::format("\n## {}\n\n{}\n\n", verb.get_name(), verb.get_description());
  for (const bool positional : {true, false})
    for (const auto* option : verb.get_options()) {
      const bool hidden = option->get_group().empty();
      if (hidden || option->get_positional() != positional) continue;
      out += fmt::format("* `{}`: {}\n", spelled(*option), option->get_description());
    }
  return out;
}

}  // namespace

std::string commands_markdown(const CLI::App& app) {
  std::string out =
      "# Commands\n\nEvery verb of `dynamiccl` with its arguments and options; `dynamiccl VERB "
      "--help` has examples too.\n`dynamiccl help --markdown` prints this page.\n";
  for (const auto* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!verb->get_group().empty()) out += markdown_of(*verb);
  return out;
}

}  // namespace dynamiccl
