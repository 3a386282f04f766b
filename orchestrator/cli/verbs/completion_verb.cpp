#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/completion.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"

namespace dynamiccl {
namespace {

struct CompletionArguments {
  std::vector<std::string> words;  ///< the shell, or the command line to complete
  int index = -1;
  bool describe = false;
};

std::vector<Candidate> candidates_of(const Table& table) {
  const TableView rows(table);
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < rows.size(); ++i)
    found.push_back({rows.text(i, "word"), rows.text(i, "description")});
  return found;
}

/// The database that the command line names, else the usual one. `--db=PATH` is one word, or in
/// bash three.
std::string database_of(const std::vector<std::string>& words, const std::string& usual) {
  constexpr std::string_view kJoined = "--db=";
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with(kJoined)) return words[i].substr(kJoined.size());
    if (words[i] != "--db") continue;
    const bool split_by_bash = i + 1 < words.size() && words[i + 1] == "=";
    if (const std::size_t value = i + (split_by_bash ? 2 : 1); value < words.size())
      return words[value];
  }
  return usual;
}

CompletionSources sources_of(const std::string& db) {
  CompletionSources sources;
  sources.runs = [db] {
    return candidates_of(Reader(db).query(
        "SELECT substr(uuid, 1, 8) AS word, name || ', ' || substr(started_utc, 1, 16) || ', ' || "
        "status AS description FROM run ORDER BY id DESC LIMIT 50"));
  };
  sources.launches = [db] {
    return candidates_of(Reader(db).query(
        "SELECT substr(launch_id, 1, 8) AS word, environment || ' ' || backend || ' ' || "
        "architecture || ' block ' || (block + 1) AS description FROM v_launch "
        "WHERE launch_status = 'ok' ORDER BY launch_row DESC LIMIT 50"));
  };
  sources.queries = [] {
    std::vector<Candidate> found;
    for (const auto& query : all_queries()) found.push_back({query.name, query.row});
    return found;
  };
  sources.environments = [] {
    std::vector<Candidate> found;
    for (const auto& [name, profile] : load_profiles(profile_folders({})))
      found.push_back({name, profile.description});
    return found;
  };
  return sources;
}

void print_words(const CLI::App& app, const CompletionArguments& arguments, const Shared& shared) {
  const auto sources = sources_of(database_of(arguments.words, shared.db));
  for (const auto& candidate :
       complete(app, arguments.words, static_cast<std::size_t>(arguments.index), sources)) {
    if (arguments.describe && !candidate.description.empty()) {
      fmt::print("{}\t{}\n", candidate.word, candidate.description);
    } else {
      fmt::print("{}\n", candidate.word);
    }
  }
}

}  // namespace

void add_completion_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("completion", "completion of verbs, options and ids for a shell");
  auto arguments = std::make_shared<CompletionArguments>();
  verb->add_option("SHELL", arguments->words, "bash, zsh or fish")->required();
  verb->add_option("--index", arguments->index, "place of the word to complete, for the scripts")
      ->group("");
  verb->add_flag("--describe", arguments->describe, "words with their descriptions")->group("");
  verb->footer(
      "Examples:\n"
      "  source <(dynamiccl completion bash)                      in ~/.bashrc\n"
      "  source <(dynamiccl completion zsh)                       in ~/.zshrc, after compinit\n"
      "  dynamiccl completion fish > ~/.config/fish/completions/dynamiccl.fish");
  verb->callback([&app, arguments, &shared] {
    if (arguments->index >= 0) return print_words(app, *arguments, shared);
    const std::vector<std::string> shells{"bash", "zsh", "fish"};
    const std::string& shell = arguments->words.front();
    if (arguments->words.size() != 1)
      throw Error(ErrorKind::input, "completion: give one shell at a time, as in: completion bash");
    if (std::find(shells.begin(), shells.end(), shell) == shells.end())
      throw Error(ErrorKind::input,
                  fmt::format("unknown shell \"{}\"; {}", shell, suggestion(shell, shells)));
    fmt::print("{}", completion_script(shell));
  });
}

}  // namespace dynamiccl
