#include <sys/stat.h>

#include <csignal>

#include "core/vocabulary/messages.hpp"
#include "orchestrator/cli/cli.hpp"

int main(int argc, char** argv) {
  dynamiccl::open_standard_streams();
  // Whatever the caller lets others do with new files, nobody else writes to those of a run, here
  // or in its ranks.
  constexpr mode_t kWrittenByOthers = 022;
  umask(umask(kWrittenByOthers) | kWrittenByOthers);
  // A reader that closes early (`| head`) must not end the program between two database writes.
  std::signal(SIGPIPE, SIG_IGN);
  // Nor a file at its limit (ulimit -f): the write fails, and what was begun is undone.
  std::signal(SIGXFSZ, SIG_IGN);
  return dynamiccl::run_command_line({argv, argv + argc});
}
