#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "orchestrator/launch/launcher.hpp"

namespace dynamiccl {

/// When the processes of one start are ended, and what is kept of what they print.
struct ProcessOptions {
  Micros timeout{120e6};
  /// A marked process that a signal has stopped for so long, while this one ran, ends the start; so
  /// do commands, none of which is a rank, that have started ranks and outlive the last of them by
  /// so long. 0: none does.
  Micros stopped_limit{0};
  /// Between TERM and KILL, and for the other commands once one has failed.
  Micros grace{2e6};
  /// Value of $DYNAMICCL_LAUNCH for every process of this start: whoever carries it and is left is
  /// ended. Must be unique.
  std::string marker;
  /// Each command's last this many bytes of stdout and of stderr are kept.
  std::size_t kept_bytes = std::size_t{64} * 1024;
  /// Whatever the commands have started ends with them, in other sessions and without the marker
  /// too. What they leave is carried away from here by `clean` when this process is killed.
  bool keeps_none = false;
  /// Called after the process groups were signalled, to end what lives in containers.
  std::function<void()> kill_elsewhere;
  /// Receives output as it comes; may be empty.
  std::function<void(const std::string& text)> on_stderr;
  std::function<void(const std::string& text)> on_stdout;
  /// Asked ten times a second; true ends the commands as a timeout would, without being one. For
  /// those who have seen enough of a command that would go on. May be empty.
  std::function<bool()> enough;
  /// Called at each look for stopped processes. May be empty.
  std::function<void()> on_look;
};

struct ProcessResult {
  int exit_code = -1;  ///< of an ended process; -1 when a signal ended it or it never started
  int signal = 0;
  bool by_itself = false;   ///< it ended before anything was ended from here
  bool is_rank = false;     ///< Command::is_rank
  std::string start_error;  ///< why it could not be started
  std::string stdout_tail;
  std::string stderr_tail;
};

/// The signal N behind an exit code 128 + N of shells and engines; 0: it is none.
inline int signal_in(int exit_code) {
  return exit_code > 128 && exit_code < 128 + 65 ? exit_code - 128 : 0;
}

/// How all commands of a launch ended together.
struct ProcessOutcome {
  std::vector<ProcessResult> results;  ///< in the order of the commands
  bool timed_out = false;
  bool ended_early = false;  ///< ProcessOptions::enough said so
  int interrupted_by = 0;    ///< the signal; 0 = none
  Micros duration;
  /// Processes that carried the marker after all commands had ended: they were ended too.
  std::vector<std::string> left_over;
  /// At the timeout or when one was stopped for too long, before anything was ended: each process
  /// and its state.
  std::vector<std::string> states;
  pid_t stopped = 0;      ///< the process that was; 0 = none
  bool deserted = false;  ///< all ranks that the commands had started were gone, they were not

  [[nodiscard]] bool ok() const;
  /// Of the failed commands the one that tells most of why, the first of several: one that could
  /// not be started, one that a signal ended before anything was ended from here, one that failed
  /// by then. nullptr when all ended with 0.
  [[nodiscard]] const ProcessResult* first_failure() const;
};

/// Starts all commands, each in a process group of its own, stdin from /dev/null, and waits until
/// all have ended and nothing carries the marker any more. Past the timeout, at an interrupt, and
/// `grace` after one of several commands failed: TERM, then after `grace` KILL, to the groups and
/// to every marked process (Open MPI's ranks leave their launcher's group). Never throws for what
/// the commands do. Not thread-safe.
ProcessOutcome run_processes(const std::vector<Command>& commands, const ProcessOptions& options);

/// Name of the variable that carries the marker.
inline constexpr const char* kMarkerVariable = "DYNAMICCL_LAUNCH";

}  // namespace dynamiccl
