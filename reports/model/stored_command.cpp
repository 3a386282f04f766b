#include "reports/model/stored_command.hpp"

#include <algorithm>

#include "core/vocabulary/text.hpp"
#include "reports/model/leaf_difference.hpp"

namespace dynamiccl {
namespace {

using Words = std::vector<std::string>;

Words quoted(Words words) {
  for (auto& word : words) word = shell_quote(word);
  return words;
}

/// An argument that is "&" by itself lies between no two beginnings of the same program.
bool are_ranks(const std::vector<Words>& commands) {
  return std::none_of(commands.begin(), commands.end(), [&](const Words& command) {
    return command.empty() || command.front() != commands.front().front();
  });
}

}  // namespace

std::vector<Words> stored_commands(const nlohmann::json& argv) {
  if (!argv.is_array()) return {};
  Words whole;
  std::vector<Words> commands(1);
  for (const auto& element : argv) {
    if (!element.is_string()) continue;
    const auto word = element.get<std::string>();
    whole.push_back(word);
    if (word == "&") {
      commands.emplace_back();
    } else {
      commands.back().push_back(word);
    }
  }
  if (commands.front().empty() || !are_ranks(commands)) return {quoted(whole)};
  for (auto& command : commands) command = quoted(std::move(command));
  return commands;
}

std::string stored_command_line(const std::string& argv_json) {
  const auto argv = stored_json(argv_json);
  if (!argv.is_array()) return argv_json;
  Words lines;
  for (const auto& command : stored_commands(argv)) lines.push_back(join(command, " "));
  return join(lines, " & ");
}

}  // namespace dynamiccl
