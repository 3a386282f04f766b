#include "orchestrator/cli/verbs/completion.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/vocabulary/text.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "orchestrator/doctor/causes.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "reports/model/figures.hpp"
#include "train/spec/training.hpp"
#include "tuner/agents/agent.hpp"
namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

enum class Kind {
  file,
  experiment,
  folder,
  database,
  run,
  launch,
  query,
  environment,
  side,
  words
};

struct NamedKind {
  std::string_view verb;  ///< "" = every verb
  std::string_view name;  ///< of an option or a positional argument
  Kind kind;
};

// What the value of an argument is follows from its name, which verbs share; exceptions first.
constexpr std::array kKinds{NamedKind{"import", "FILE", Kind::file},
                            NamedKind{"", "FILE", Kind::experiment},
                            NamedKind{"", "RUN", Kind::run},
                            NamedKind{"", "--run", Kind::run},
                            NamedKind{"", "--measured", Kind::run},
                            NamedKind{"", "--from", Kind::run},
                            NamedKind{"", "A", Kind::side},
                            NamedKind{"", "B", Kind::side},
                            NamedKind{"", "LAUNCH", Kind::launch},
                            NamedKind{"", "NAME", Kind::query},
                            NamedKind{"", "ENVIRONMENT", Kind::environment},
                            NamedKind{"", "--environment", Kind::environment},
                            NamedKind{"", "--profile", Kind::experiment},
                            NamedKind{"", "--db", Kind::database},
                            NamedKind{"", "--profiles", Kind::folder},
                            NamedKind{"", "--only", Kind::words},
                            NamedKind{"", "--band", Kind::words},
                            NamedKind{"", "--name", Kind::words},
                            NamedKind{"", "--up-to", Kind::words},
                            NamedKind{"", "--regime", Kind::words}};

struct NamedWords {
  std::string_view verb;  ///< "" = every verb
  std::string_view name;
  std::vector<Candidate> words;
};

std::vector<Candidate> candidates(const std::vector<std::string>& words,
                                  const std::string& behind = "") {
  std::vector<Candidate> found;
  for (const auto& word : words) found.push_back({word + behind, ""});
  return found;
}

std::vector<Candidate> causes() {
  std::vector<Candidate> found;
  for (const Cause& cause : all_causes())
    found.push_back({std::string(cause.id), std::string(cause.title)});
  return found;
}

const std::vector<NamedWords>& fixed_words() {
  static const std::vector<NamedWords> all{
      {"", "SHELL", candidates({"bash", "zsh", "fish"})},
      {"", "--backend", candidates(all_names<Backend>())},
      {"", "--cause", causes()},
      {"show", "--trace", candidates(all_names<TrainingMethod>())},
      {"", "--rank-aggregation", candidates(all_names<RankAggregation>())},
      {"", "--operation", candidates(operations_of_nccl_tests())},
      {"", "--vary", candidates(axis_names())},
      {"", "--where", candidates(axis_names(), "=")},
      {"", "--agent", candidates(agent_names())},
      {"",
       "--set",
       {{"protocol.launches=", "blocks"},
        {"protocol.target_interval=", "add launches until medians are as sure as this"},
        {"protocol.time_budget=", "no block begins beyond it"},
        {"protocol.iterations=", "timed iterations"},
        {"axes.environment=", ""},
        {"axes.backend=", ""},
        {"axes.ranks=", ""},
        {"seed=", ""}}}};
  return all;
}

/// The row for an argument of a verb; nullptr where there is none.
const auto* row_of(const auto& rows, std::string_view verb, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
    return row.name == name && (row.verb.empty() || row.verb == verb);
  });
  return found == rows.end() ? nullptr : &*found;
}

bool is_value_of(const CLI::Option& option, const std::string& word) {
  const auto has = [&](const std::vector<std::string>& names, std::size_t dashes) {
    return word.size() > dashes &&
           std::find(names.begin(), names.end(), word.substr(dashes)) != names.end();
  };
  if (word.starts_with("--")) return has(option.get_lnames(), 2);
  return word.starts_with("-") && has(option.get_snames(), 1);
}

const CLI::Option* option_named(const CLI::App& verb, const std::string& word) {
  for (const auto* option : verb.get_options()) {
    if (is_value_of(*option, word)) return option;
  }
  return nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<Candidate> asked(const std::function<std::vector<Candidate>()>& source) {
  if (!source) return {};
  try {
    return source();
  } catch (const std::exception&) {
    // No database yet, or one that cannot be read: the shell is no place for its message.
    return {};
  }
}

std::vector<Candidate> runs_of(const CompletionSources& sources) {
  auto runs = asked(sources.runs);
  runs.push_back({"last", "the newest run of an experiment"});
  runs.push_back({"last~1", "the run before it"});
  return runs;
}

/// A side of a comparison: a run, an environment of one, or another machine's database.
std::vector<Candidate> sides_of(const std::string& current, const CompletionSources& sources) {
  auto sides = runs_of(sources);
  for (auto& environment : asked(sources.environments)) sides.push_back(std::move(environment));
  for (auto& axis : candidates(axis_names(), "=")) sides.push_back(std::move(axis));
  for (auto& path : matching_paths(current, ".sqlite")) sides.push_back(std::move(path));
  return sides;
}

/// Values of an axis that has names for them.
std::vector<Candidate> values_of_axis(const std::string& axis, const CompletionSources& sources) {
  if (axis == "environment") return asked(sources.environments);
  if (axis == "backend") return candidates(all_names<Backend>());
  if (axis == "architecture") return candidates(all_names<Architecture>());
  if (axis == "collective") return candidates(all_names<Collective>());
  if (axis == "datatype") return candidates(all_names<DataType>());
  if (axis == "in_place") return candidates({"0", "1"});
  return {};
}

/// Where the word is "backend=" or goes on behind it, and that was offered: its values instead.
std::vector<Candidate> with_axis_values(std::vector<Candidate> offered, const std::string& current,
                                        const CompletionSources& sources) {
  const std::string start = current.substr(0, current.find('=') + 1);
  if (std::erase_if(offered, [&](const Candidate& one) { return one.word == start; }) == 0)
    return offered;
  constexpr std::string_view section = "axes.";  // of --set
  std::string axis = start.substr(0, start.size() - 1);
  if (axis.starts_with(section)) axis.erase(0, section.size());
  for (auto& value : values_of_axis(axis, sources))
    offered.push_back({start + value.word, std::move(value.description)});
  return offered;
}

/// What an option that add_choice_option made takes: its help shows "table|csv" as its value.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string shown = option.get_type_name();
  return shown.find('|') == std::string::npos ? std::vector<std::string>{} : split(shown, '|');
}

/// @param argument an option or a positional argument of the verb
std::vector<Candidate> values_of(const std::string& verb, const CLI::Option& argument,
                                 const std::string& current, const CompletionSources& sources) {
  const std::string name = argument.get_name(argument.get_positional());
  if (const auto words = choices_of(argument); !words.empty()) return candidates(words);
  if (const auto* fixed = row_of(fixed_words(), verb, name))
    return with_axis_values(fixed->words, current, sources);
  // CLI11 calls a text "TEXT" and numbers by their kind, "INT:POSITIVE": no file is one.
  if (!argument.get_type_name().starts_with("TEXT")) return {};
  const auto* known = row_of(kKinds, verb, name);
  switch (known == nullptr ? Kind::file : known->kind) {
    case Kind::experiment:
      return matching_paths(current, ".toml");
    case Kind::database:
      return matching_paths(current, ".sqlite");
    case Kind::folder:
    case Kind::file:
      return matching_paths(current, "");
    case Kind::run:
      return runs_of(sources);
    case Kind::launch:
      return asked(sources.launches);
    case Kind::query:
      return asked(sources.queries);
    case Kind::environment:
      return asked(sources.environments);
    case Kind::side:
      return with_axis_values(sides_of(current, sources), current, sources);
    case Kind::words:
      break;
  }
  return {};
}

std::vector<Candidate> options_of(const CLI::App& verb) {
  std::vector<Candidate> found;
  for (const auto* option : verb.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    for (const auto& name : option->get_lnames())
      found.push_back({"--" + name, first_line(option->get_description())});
    if (!option->get_lnames().empty()) continue;
    for (const auto& name : option->get_snames())
      found.push_back({"-" + name, first_line(option->get_description())});
  }
  return found;
}

std::vector<Candidate> verbs_of(const CLI::App& app) {
  std::vector<Candidate> found;
  for (const auto* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    found.push_back({verb->get_name(), first_line(verb->get_description())});
  return found;
}

/// The positional argument that stands after `given` others; a list takes all that follow.
const CLI::Option* positional(const CLI::App& verb, std::size_t given) {
  const CLI::Option* last = nullptr;
  for (const auto* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    last = option;
    if (given == 0) return option;
    --given;
  }
  return last != nullptr && last->get_items_expected_max() > 1 ? last : nullptr;
}

/// "backend" "=" "gloo" of bash as "backend=gloo", with the index moved along.
std::vector<std::string> joined_at_equals(const std::vector<std::string>& words,
                                          std::size_t& index) {
  std::vector<std::string> joined;
  const std::size_t asked_for = index;
  for (std::size_t i = 0; i < words.size(); ++i) {
    // An empty word is one that begins behind a blank.
    const bool behind = i > 0 && words[i - 1] == "=" && !words[i].empty();
    if (!joined.empty() && (words[i] == "=" || behind)) {
      joined.back() += words[i];
    } else {
      joined.push_back(words[i]);
    }
    if (i == asked_for) index = joined.size() - 1;
  }
  return joined;
}

std::vector<Candidate> beginning_with(std::vector<Candidate> candidates, const std::string& start) {
  std::erase_if(candidates,
                [&](const Candidate& candidate) { return !candidate.word.starts_with(start); });
  return candidates;
}

std::vector<Candidate> complete_verb(const CLI::App& verb, const std::vector<std::string>& words,
                                     std::size_t index, const CompletionSources& sources) {
  const std::string& current = words[index];
  const CLI::Option* before = option_named(verb, words[index - 1]);
  if (before != nullptr && takes_value(*before))
    return values_of(verb.get_name(), *before, current, sources);
  if (const auto equals = current.find('=');
      current.starts_with("--") && equals != std::string::npos) {
    const std::string value = current.substr(equals + 1);
    const CLI::Option* option = option_named(verb, current.substr(0, equals));
    if (option == nullptr) return {};
    auto values = values_of(verb.get_name(), *option, value, sources);
    for (auto& candidate : values) candidate.word.insert(0, current, 0, equals + 1);
    return values;
  }
  if (current.starts_with("-")) return options_of(verb);
  std::size_t given = 0;
  for (std::size_t i = 2; i < index; ++i) {
    if (words[i].starts_with("-")) continue;
    const CLI::Option* option = option_named(verb, words[i - 1]);
    if (i > 2 && option != nullptr && takes_value(*option)) continue;
    ++given;
  }
  const CLI::Option* argument = positional(verb, given);
  if (argument == nullptr) return options_of(verb);
  return values_of(verb.get_name(), *argument, current, sources);
}

}  // namespace

std::vector<Candidate> matching_paths(const std::string& prefix, const std::string& extension) {
  const auto slash = prefix.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : prefix.substr(0, slash + 1);
  const std::string start = slash == std::string::npos ? prefix : prefix.substr(slash + 1);
  std::vector<Candidate> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(start) || (start.empty() && name.starts_with("."))) continue;
    if (entry.is_directory(error)) {
      found.push_back({folder + name + "/", ""});
    } else if (extension.empty() || name.ends_with(extension)) {
      found.push_back({folder + name, ""});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Candidate& a, const Candidate& b) { return a.word < b.word; });
  return found;
}

std::vector<Candidate> complete(const CLI::App& app, const std::vector<std::string>& words,
                                std::size_t index, const CompletionSources& sources) {
  std::vector<std::string> line = words;
  if (index >= line.size()) line.resize(index + 1);
  line.resize(index + 1);  // what stands behind the cursor does not matter
  const std::string typed = line[index];
  line = joined_at_equals(line, index);
  if (index == 0) return {};
  const std::string current = line[index];
  if (index == 1) {
    auto candidates = current.starts_with("-") ? options_of(app) : verbs_of(app);
    return beginning_with(std::move(candidates), current);
  }
  for (const auto* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() != line[1]) continue;
    auto candidates = beginning_with(complete_verb(*verb, line, index, sources), current);
    // bash replaces what stands behind "=" alone, other shells the whole word.
    const std::size_t kept = typed == "=" ? current.size() : current.size() - typed.size();
    for (auto& candidate : candidates) candidate.word.erase(0, kept);
    return candidates;
  }
  return {};
}

}  // namespace dynamiccl
