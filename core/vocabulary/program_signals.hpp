#pragma once

#include <array>
#include <csignal>

namespace dynamiccl {

/// Signals by which somebody, or a terminal, asks this program to end.
inline constexpr std::array kEndSignals{SIGINT, SIGTERM, SIGHUP};

/// Signals that this program handles or ignores, or may have been started with ignored: a program
/// that it starts finds them as they are by default. One that ignores SIGCHLD cannot wait for its
/// own children (waitpid(2)), as launchers do.
inline constexpr std::array kChildDefaults{SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGCHLD};

}  // namespace dynamiccl
