#include "orchestrator/launch/interrupt.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/program_signals.hpp"

namespace dynamiccl {
namespace {

// A signal handler can only reach what is global: these are all of it.
std::atomic<int> noted{0};
std::atomic<int> write_end{-1};
int read_end = -1;

std::array<struct sigaction, kEndSignals.size()> previous{};

void note(int signal) {
  const int saved = errno;
  noted = signal;
  noted_end_signals += 1;
  const char byte = 1;
  // A full pipe has reported enough already.
  [[maybe_unused]] const auto written = write(write_end, &byte, 1);
  errno = saved;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  DYN_ASSERT(read_end == -1, "one InterruptGuard at a time");
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw Error(ErrorKind::environment, "no pipe for signals: too many open files");
  read_end = ends[0];
  write_end = ends[1];
  noted = 0;
  noted_end_signals = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kEndSignals.size(); ++i)
    sigaction(kEndSignals[i], &action, &previous[i]);
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kEndSignals.size(); ++i)
    sigaction(kEndSignals[i], &previous[i], nullptr);
  close(read_end);
  close(write_end);
  read_end = -1;
  write_end = -1;
}

int interrupt_signal() { return noted; }

bool interrupted() { return noted != 0; }

int interrupt_descriptor() { return read_end; }

}  // namespace dynamiccl
