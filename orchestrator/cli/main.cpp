#include <csignal>

#include "core/vocabulary/messages.hpp"
#include "orchestrator/cli/cli.hpp"

int main(int argc, char** argv) {
  dynamiccl::open_standard_streams();
  // A reader that closes early (`| head`) must not end the program between two database writes.
  std::signal(SIGPIPE, SIG_IGN);
  // Nor a file at its limit (ulimit -f): the write fails, and what was begun is undone.
  std::signal(SIGXFSZ, SIG_IGN);
  return dynamiccl::run_command_line({argv, argv + argc});
}
