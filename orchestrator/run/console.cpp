#include "orchestrator/run/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "orchestrator/launch/interrupt.hpp"

namespace dynamiccl {

namespace {

bool may_be_coloured(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && (no_color == nullptr || *no_color == '\0') && term != nullptr &&
         std::string_view(term) != "dumb";
}

}  // namespace

bool stderr_may_be_coloured() { return may_be_coloured(STDERR_FILENO); }

std::string coloured_for_stdout(std::string text) {
  if (!may_be_coloured(STDOUT_FILENO)) return text;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kWords{
      {{"SLOWER", "\033[31m"},
       {"FASTER", "\033[32m"},
       {"FAILED", "\033[31m"},
       {"FLAGGED", "\033[31m"},
       {"NOT VERIFIED", "\033[31m"}}};
  for (const auto& [word, colour] : kWords)
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      const std::string shown = fmt::format("{}{}\033[0m", colour, word);
      text.replace(at, word.size(), shown);
      at += shown.size();
    }
  return text;
}

std::size_t stdout_columns() {
  constexpr std::size_t kElsewhere = 100;
  constexpr std::size_t kMost = 10000;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  const char* said = std::getenv("COLUMNS");
  if (said == nullptr) return kElsewhere;
  std::size_t columns = 0;
  const std::string_view text(said);
  const auto read = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole && columns > 0 && columns <= kMost ? columns : kElsewhere;
}

std::string two_columns(const std::vector<std::pair<std::string, std::string>>& entries,
                        std::size_t columns) {
  constexpr std::size_t kNarrowest = 24;  // below that a terminal's own breaks read better
  std::size_t longest = 0;
  for (const auto& [name, text] : entries) longest = std::max(longest, name.size());
  const std::size_t indent = longest + 4;
  const bool wraps = columns >= indent + kNarrowest;
  std::string lines;
  for (const auto& [name, text] : entries) {
    const auto pieces = wraps ? broken_lines(text, columns - indent) : std::vector{text};
    for (std::size_t i = 0; i < pieces.size(); ++i)
      lines += fmt::format("  {:<{}}  {}\n", i == 0 ? name : "", longest, pieces[i]);
  }
  return lines;
}

namespace {

constexpr std::array<std::string_view, 3> kColours{"\033[32m", "\033[31m", "\033[0m"};

std::string with_our_colours(const std::string& message) {
  std::string shown;
  std::size_t from = 0;
  for (std::size_t at = message.find('\033'); at != std::string::npos;
       at = message.find('\033', at + 1)) {
    for (const auto colour : kColours) {
      if (message.compare(at, colour.size(), colour) != 0) continue;
      shown += printable(std::string_view(message).substr(from, at - from));
      shown += colour;
      from = at + colour.size();
    }
  }
  return shown + printable(std::string_view(message).substr(from));
}

}  // namespace

Progress preparation_progress() {
  return {[](const std::string& step) { tell(fmt::format("  {}\n", printable(step))); },
          interrupted};
}

std::string format_eta(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

Console::Console(Verbosity verbosity, std::FILE* out)
    : verbosity_(verbosity),
      out_(out),
      coloured_(out == stderr && stderr_may_be_coloured()),
      began_(std::chrono::steady_clock::now()) {}

void Console::expect(std::optional<std::size_t> launches) {
  expected_ = launches;
  done_ = 0;
  began_ = std::chrono::steady_clock::now();
}

void Console::note(const std::string& message) const {
  if (verbosity_ == Verbosity::quiet) return;
  write(message);
}

void Console::write(const std::string& message) const {
  // Our own colours are the only escapes that reach a terminal.
  tell((coloured_ ? with_our_colours(message) : printable(message)) + "\n", out_);
}

void Console::detail(const std::string& message) const {
  if (verbosity_ == Verbosity::verbose) note(message);
}

void Console::warning(const std::string& message) const { write(message); }

std::string Console::eta() const {
  if (!expected_ || done_ == 0 || done_ >= *expected_) return "";
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
  const double left =
      took.count() / static_cast<double>(done_) * static_cast<double>(*expected_ - done_);
  return ", ETA " + format_eta(left);
}

void Console::launched(const std::string& what, const std::string& reason, double seconds) {
  ++done_;
  const std::string place =
      expected_ ? fmt::format("{:>{}}/{}", done_, std::to_string(*expected_).size(), *expected_)
                : std::to_string(done_);
  const bool ok = reason.empty();
  const char* colour = !coloured_ ? "" : ok ? "\033[32m" : "\033[31m";
  const char* plain = coloured_ ? "\033[0m" : "";
  const std::string line = fmt::format("[{}] {}: {}{}{} {:.1f} s{}", place, what, colour,
                                       ok ? "ok" : "FAILED", plain, seconds, eta());
  if (ok) {
    note(line);
  } else {
    warning(line + "\n    " + reason);
  }
}

}  // namespace dynamiccl
