#include "orchestrator/tune/job/job_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "core/vocabulary/text.hpp"
#include "tuner/export/one_host.hpp"

extern char** environ;  // NOLINT: POSIX has it in no header

namespace dynamiccl {
namespace {

/// Of what a job says last: a line may be as long as it likes.
constexpr std::size_t kMostOfLine = 300;

/// A line's beginning, whole letters, and how much it goes on.
std::string shortened(const std::string& line) {
  std::size_t end = kMostOfLine;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
  return fmt::format("{} ... ({} more bytes)", line.substr(0, end), line.size() - end);
}

}  // namespace

std::string milliseconds(double us) { return fmt::format("{:.4g} ms", us / 1e3); }

// Frames of dashes say nothing.
std::string last_line(const std::string& text) {
  std::string last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (std::any_of(line.begin(), line.end(),
                    [](unsigned char c) { return std::isalnum(c) != 0 || c >= 0x80; }))
      last = trim(line);
  return last.size() <= kMostOfLine ? last : shortened(last);
}

std::set<std::string> users_variables(Backend library) {
  std::set<std::string> names;
  const bool nccl = library == Backend::nccl;
  const auto add = [&](const std::string& line) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) return;
    for (const char* prefix : {"NCCL_", "OMPI_MCA_", "MPIR_CVAR_", "UCX_"})
      if (line.starts_with(prefix) && nccl == line.starts_with("NCCL_"))
        names.insert(line.substr(0, equals));
  };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) add(*entry);
  if (!nccl) return names;
  std::istringstream lines(users_conf());
  for (std::string line; std::getline(lines, line);) add(line);
  return names;
}

std::string preload_flags(const JobCommand& command) {
  return fmt::format("{} {} --env LD_PRELOAD={}", volume_option(command.one_host_folder()),
                     volume_option(command.one_host_library(), "", true),
                     shell_quote(command.one_host_library()));
}

std::string variable_here(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? "" : value;
}

}  // namespace dynamiccl
