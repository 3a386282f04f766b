#include "orchestrator/cli/verbs/started_as.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "containers/command.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kInstalledName = "dynamiccl";

/// Whether the bare name starts this very program: an older one, or another's, may have it.
bool is_on_path() {
  std::error_code error;
  const std::string found = find_program(std::string(kInstalledName));
  return !found.empty() && std::filesystem::equivalent(found, "/proc/self/exe", error) && !error;
}

}  // namespace

std::string started_as(const std::string& argv0) {
  const char* script = std::getenv("DYNAMICCL_STARTED_AS");
  if (script != nullptr && *script != '\0') return script;
  return argv0.empty() || is_on_path() ? std::string(kInstalledName) : argv0;
}

std::string with_pasteable_commands(const std::string& text, const std::string& argv0) {
  constexpr std::string_view kNext = "next: ";
  const std::string name = shell_quote(started_as(argv0));
  std::vector<std::string> lines = split(text, '\n');
  for (auto& line : lines) {
    auto at = line.find_first_not_of(' ');
    if (at == std::string::npos) continue;
    if (std::string_view(line).substr(at).starts_with(kNext)) at += kNext.size();
    const auto rest = std::string_view(line).substr(at);
    if (rest.starts_with(kInstalledName) && rest.substr(kInstalledName.size()).starts_with(' '))
      line.replace(at, kInstalledName.size(), name);
  }
  return join(lines, "\n");
}

std::string with_database(const std::string& text, const std::string& words) {
  constexpr std::array<std::string_view, 8> kOfDatabases{"run",     "list",   "show",   "query",
                                                         "compare", "report", "replay", "import"};
  std::vector<std::string> parts = split(text, '`');
  // Every second part stands between backquotes; one that is not closed is no command.
  for (std::size_t i = 1; i + 1 < parts.size() && !words.empty(); i += 2) {
    const std::vector<std::string> command = split(parts[i], ' ');
    const bool works =
        command.size() > 1 && command.front() == kInstalledName &&
        std::find(kOfDatabases.begin(), kOfDatabases.end(), command[1]) != kOfDatabases.end();
    const auto has = [&](const char* option) {
      return std::find(command.begin(), command.end(), option) != command.end();
    };
    if (works && !has("--db") && !has("--help")) parts[i] += words;
  }
  return join(parts, "`");
}

}  // namespace dynamiccl
