#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "containers/progress.hpp"

namespace dynamiccl {

/// How much is printed to stderr. quiet: errors only.
enum class Verbosity { quiet, normal, verbose };

/// Whether stderr may be coloured: a terminal, and neither NO_COLOR nor TERM=dumb is set.
bool stderr_may_be_coloured();

/// Columns of the terminal that stdout is. Of a file or a pipe: $COLUMNS where it is set, else 100.
std::size_t stdout_columns();

/// A text with its verdicts coloured, where stdout is a terminal and neither NO_COLOR nor TERM=dumb
/// is set.
std::string coloured_for_stdout(std::string text);

/// A line for each name and what it is, in two columns.
/// @param columns what is longer goes on below itself; 0 = one line each, whatever its length
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& entries,
                        std::size_t columns);

/// Messages and progress on stderr; data never goes here. One line per finished launch, no cursor
/// movement, so that logs read like a terminal.
class Console {
 public:
  explicit Console(Verbosity verbosity, std::FILE* out = stderr);

  /// @param launches still to be done; nullopt = nobody knows
  void expect(std::optional<std::size_t> launches);
  void note(const std::string& message) const;     ///< unless quiet
  void detail(const std::string& message) const;   ///< verbose only
  void warning(const std::string& message) const;  ///< always
  /// A launch that is done with: `[ 12/120] cross-docker gloo ring 2 ranks, block 3: ok 1.9 s, ETA
  /// 3m10s`, `[12] ...` where nobody knows how many are to come.
  /// @param reason why it is not ok; empty = ok
  void launched(const std::string& what, const std::string& reason, double seconds);
  [[nodiscard]] bool verbose() const { return verbosity_ == Verbosity::verbose; }

 private:
  [[nodiscard]] std::string eta() const;
  void write(const std::string& message) const;

  Verbosity verbosity_;
  std::FILE* out_;
  bool coloured_;
  std::optional<std::size_t> expected_;
  std::size_t done_ = 0;
  std::chrono::steady_clock::time_point began_;
};

/// Steps of a preparation on stderr; Ctrl-C ends it.
Progress preparation_progress();

/// "45s", "3m10s", "2h05m".
std::string format_eta(double seconds);

}  // namespace dynamiccl
