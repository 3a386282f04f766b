#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kNoOption =
    R"(    *" {} "*) [[ $word == -* ]] && words='{}' || words='{}' ;;)";

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// "--db", "-q": as they are typed. None of a hidden option or a positional argument.
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> all;
  if (option.get_group().empty()) return all;
  for (const auto& name : option.get_lnames()) all.push_back("--" + name);
  for (const auto& name : option.get_snames()) all.push_back("-" + name);
  return all;
}

/// What an option that add_choice_option made takes: its help shows "table|csv" as its value.
std::string choices_of(const CLI::Option& option) {
  const std::string shown = option.get_type_name();
  return shown.find('|') == std::string::npos ? "" : join(split(shown, '|'), " ");
}

/// The words that a verb takes where no option stands, if they are the same everywhere.
std::string verb_words(const CLI::App& verb) {
  if (verb.get_name() == "completion") return "bash zsh fish";
  if (verb.get_name() == "tune") return "search sweep replay apply check job";
  std::vector<std::string> names;
  if (verb.get_name() == "query")
    for (const auto& query : all_queries()) names.push_back(query.name);
  return join(names, " ");
}

/// zsh takes bash's by its own bashcompinit. Where no word is known, the shell offers files.
std::string bash_script(const CLI::App& app) {
  std::vector<std::string> verbs;
  std::vector<std::string> cases;
  for (const auto* verb : verbs_of(app)) {
    verbs.push_back(verb->get_name());
    std::vector<std::string> options;
    for (const auto* option : verb->get_options()) {
      const auto names = spellings(*option);
      options.insert(options.end(), names.begin(), names.end());
      if (const auto words = choices_of(*option); !words.empty() && !names.empty())
        cases.push_back(
            fmt::format("    *\" {} {}\") words='{}' ;;", verb->get_name(), names.front(), words));
    }
    cases.push_back(
        fmt::format(kNoOption, verb->get_name(), join(options, " "), verb_words(*verb)));
  }
  return fmt::format(R"SH(# source <(dynamiccl completion bash), or zsh
if [[ -n ${{ZSH_VERSION-}} ]]; then autoload -U +X bashcompinit && bashcompinit; fi
_dynamiccl() {{
  local words= word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  case "$COMP_CWORD ${{COMP_WORDS[1]}} $before" in
    1\ *) words='{}' ;;
{}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _dynamiccl dynamiccl
)SH",
                     join(verbs, " "), join(cases, "\n"));
}

/// A description's first line between single quotes.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text.substr(0, text.find('\n')))
    out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

std::string fish_script(const CLI::App& app) {
  std::string lines = "# dynamiccl completion fish | source\n";
  for (const auto* verb : verbs_of(app)) {
    lines += fmt::format("complete -c dynamiccl -n __fish_use_subcommand -xa {} -d {}\n",
                         verb->get_name(), quoted(verb->get_description()));
    const auto of_verb =
        fmt::format("complete -c dynamiccl -n '__fish_seen_subcommand_from {}'", verb->get_name());
    if (const auto words = verb_words(*verb); !words.empty())
      lines += fmt::format("{} -xa '{}'\n", of_verb, words);
    for (const auto* option : verb->get_options()) {
      if (spellings(*option).empty()) continue;
      lines += of_verb;
      for (const auto& name : option->get_lnames()) lines += " -l " + name;
      for (const auto& name : option->get_snames()) lines += " -s " + name;
      const auto words = choices_of(*option);
      lines += !words.empty() ? fmt::format(" -xa '{}'", words)
                              : std::string(option->get_items_expected_max() > 0 ? " -r" : "");
      lines += fmt::format(" -d {}\n", quoted(option->get_description()));
    }
  }
  return lines;
}

}  // namespace

void add_completion_verb(CLI::App& app, Shared& /*shared*/) {
  auto* verb = app.add_subcommand("completion", "completion of verbs and options for a shell");
  auto shell = std::make_shared<std::string>();
  verb->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  verb->footer(
      "Examples:\n"
      "  source <(dynamiccl completion bash)                      in ~/.bashrc\n"
      "  source <(dynamiccl completion zsh)                       in ~/.zshrc, after compinit\n"
      "  dynamiccl completion fish > ~/.config/fish/completions/dynamiccl.fish");
  verb->callback([&app, shell] {
    const std::vector<std::string> shells{"bash", "zsh", "fish"};
    if (std::find(shells.begin(), shells.end(), *shell) == shells.end())
      throw Error(ErrorKind::input,
                  fmt::format("unknown shell \"{}\"; {}", *shell, suggestion(*shell, shells)));
    fmt::print("{}", *shell == "fish" ? fish_script(app) : bash_script(app));
  });
}

}  // namespace dynamiccl
