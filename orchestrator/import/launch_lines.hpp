#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {

/// What a command line of a benchmark program sets besides what its table prints of each row: "-R"
/// to "2", "-root_shift" to "on". Options that only choose rows (sizes, calls, operations) are left
/// out.
std::map<std::string, std::string> options_in(const std::vector<std::string>& words);

/// Whether a variable steers a communication library, and is none that a scheduler sets anew for
/// each job.
bool steers_library(std::string_view name);

/// A setting as it may be stored, "env.NAME" or another; where that hides its value, the value goes
/// to ForeignStart::hidden.
void add_setting(ForeignStart& start, const std::string& setting, const std::string& value);

/// Processes that a command line of a launcher starts (`mpirun -np 2 ...`), or that a line names
/// (`nprocs: 2`, `=== 8 ranks ===`); nullopt for other lines.
std::optional<int> processes_in(const std::string& line);

/// The lines of launchers, schedulers and scripts around tables: what they say of the tables that
/// follow.
class LaunchLines {
 public:
  void read(const std::string& line, std::size_t number);
  /// A table begins: it gets what was said since the one before.
  void begin(ForeignStart& start);
  /// By the last command line or banner; nullopt = it did not say.
  [[nodiscard]] std::optional<int> processes() const { return processes_; }

 private:
  void read_command(const std::vector<std::string>& words);

  std::string banner_;
  std::string command_;               ///< that starts a program of ours, since the table before
  std::vector<std::string> goes_on_;  ///< of lines that end in a backslash
  std::optional<int> processes_;
  std::size_t processes_line_ = 0;
  std::map<std::string, std::string> settings_;  ///< of lines since the table before
  std::map<std::string, std::string> exported_;  ///< hold for all that follow
};

}  // namespace dynamiccl
