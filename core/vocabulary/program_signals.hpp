#pragma once

#include <array>
#include <atomic>
#include <csignal>

namespace dynamiccl {

/// Signals by which somebody, or a terminal, asks this program to end.
inline constexpr std::array kEndSignals{SIGINT, SIGTERM, SIGHUP};

/// How many of them were noted by who then ends the program in order: who computes or waits for
/// long asks here whether to go on.
inline std::atomic<int> noted_end_signals{0};

/// Signals that this program handles or ignores, or may have been started with ignored: a program
/// that it starts finds them as they are by default. One that ignores SIGCHLD cannot wait for its
/// own children (waitpid(2)), as launchers do.
inline constexpr std::array kChildDefaults{SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGCHLD};

}  // namespace dynamiccl
