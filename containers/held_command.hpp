#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dynamiccl {

/// A command that lives as long as somebody holds its standard input: a container, here or behind a
/// connection, whose first process ends when this closes. It closes with this process however that
/// ends, so that even a kill leaves nothing. In a process group of its own, so that a Ctrl-C at the
/// terminal does not reach it. Not thread-safe.
class HeldCommand {
 public:
  /// @param errors file that its stderr is appended to
  /// @throws Error(environment) when it cannot be started
  HeldCommand(const std::vector<std::string>& argv, const std::string& errors);
  ~HeldCommand();
  HeldCommand(HeldCommand&& other) noexcept;
  HeldCommand& operator=(HeldCommand&&) = delete;
  HeldCommand(const HeldCommand&) = delete;
  HeldCommand& operator=(const HeldCommand&) = delete;

  /// Reads its stdout up to the first line that begins so. @param interrupted asked meanwhile; may
  /// be nullptr
  /// @returns the line, or nullopt when it has ended, time is up or interrupted
  std::optional<std::string> read_line(const std::string& begin, std::chrono::milliseconds most,
                                       bool (*interrupted)());
  /// Nobody holds its stdout any more, as where it has ended by itself.
  [[nodiscard]] bool is_silent() const;
  /// Lets go of its input. Idempotent.
  void let_go();
  /// The same, waits that long for its end, then ends its group.
  void end(std::chrono::milliseconds most);
  /// end() of all at once: they share each wait, so that many take no longer than one.
  static void end_all(std::vector<HeldCommand>& commands, std::chrono::milliseconds most);

 private:
  static void end_these(const std::vector<HeldCommand*>& commands, std::chrono::milliseconds most);
  void collect(std::chrono::steady_clock::time_point deadline);

  pid_t child_ = -1;  ///< -1: it has ended
  int input_ = -1;
  int output_ = -1;
};

}  // namespace dynamiccl
