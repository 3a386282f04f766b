#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// The head of an experiment: two ranks all-reduce 1 KiB in the environments (a TOML value) by the
/// backend. A test appends its [protocol].
std::string one_cell(const std::string& environments, const std::string& backend);

// For Program::value and Program::wait_until: launches of all runs in its database.
inline constexpr const char* kOkLaunches = "SELECT count(*) FROM launch WHERE status = 'ok'";
inline constexpr const char* kRunning = "SELECT count(*) FROM launch WHERE status = 'running'";

/// The built program with a folder and a database of its own; both go away with the object.
/// $DYNAMICCL_TEST_PROGRAM names another program, as to see a test fail with it.
class Program {
 public:
  Program();
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  struct Result {
    int exit_code = 0;
    std::string out;
    std::string err;
  };
  /// Runs a verb to its end, with --db where the verb has it.
  [[nodiscard]] Result run(std::vector<std::string> arguments) const;
  /// Rows of read-only SQL.
  [[nodiscard]] nlohmann::json rows(const std::string& sql) const;
  /// First value of the first row.
  [[nodiscard]] nlohmann::json value(const std::string& sql) const;

  /// Starts a verb in a process group of its own and comes back at once.
  [[nodiscard]] pid_t start(std::vector<std::string> arguments) const;
  /// The same as the foreground of a new terminal. @param terminal its other end; closing that
  /// closes the terminal
  [[nodiscard]] pid_t start_in_terminal(std::vector<std::string> arguments, int& terminal) const;
  /// Waits for a started one. @returns its exit code, 128 + signal when one ended it; -1: it did
  /// not end within minutes, which stderr tells of, and was ended
  static int wait(pid_t pid);
  /// Whether a started one is over; it can still be waited for.
  [[nodiscard]] static bool has_ended(pid_t pid);
  /// What the started ones have printed so far.
  [[nodiscard]] std::string said() const;
  /// Waits until the SQL's first value is at least `least`. @returns false after 60 s
  [[nodiscard]] bool wait_until(const std::string& sql, int least) const;

  /// From here on a copy of the program runs, with this file as one of its workers.
  void replace_worker(const std::string& name, const std::string& file);

  /// From here on a copy of the program runs, and ranks of all launches but the first so many wait
  /// for let_go(): something can meet such a launch under way, however late it comes.
  void hold_launches(int after);
  void let_go() const;

  /// From here on the program is started behind these words, such as {"unshare", "--net"}.
  void start_behind(std::vector<std::string> words) { prefix_ = std::move(words); }

  /// Writes a file into the folder. @returns its path
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const;
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string db() const { return folder_ + "/e2e.sqlite"; }
  /// Of the program itself.
  [[nodiscard]] const std::string& path() const { return program_; }
  /// Command lines of live processes that have to do with this folder.
  [[nodiscard]] std::vector<std::string> processes() const;

 private:
  [[nodiscard]] std::vector<std::string> argv(std::vector<std::string> arguments) const;
  /// @returns its folder
  std::string use_copy();

  std::string folder_;
  std::string program_;
  std::vector<std::string> prefix_;
};

}  // namespace dynamiccl
