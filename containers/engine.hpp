#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Whose command line an engine has.
enum class EngineKind { docker, podman };

/// A container engine that answers, and how it is spoken to.
struct Engine {
  EngineKind kind = EngineKind::docker;
  /// First words of every command: {"docker"} or {"docker", "--host", "unix:///..."}.
  std::vector<std::string> command;
  std::string socket;  ///< Docker's socket, "" for Podman
  /// Flags every `run` needs on this machine, e.g. Podman without CAP_SYS_RESOURCE.
  std::vector<std::string> run_flags;
  bool is_private = false;  ///< ours, to be started on first use

  [[nodiscard]] std::string name() const {
    return kind == EngineKind::docker ? "docker" : "podman";
  }
};

/// 0 when somebody takes connections on the unix socket: a dockerd, or systemd, which starts one
/// when it is spoken to; else the errno.
int connect_error(const std::string& socket);

/// True when an HTTP server that speaks Docker's API answers on the unix socket within a second.
bool docker_answers(const std::string& socket);

/// "docker 20.10.24" or "podman 4.3.1".
/// @throws Error(environment)
std::string engine_version(const Engine& engine);

/// engine.command followed by arguments.
std::vector<std::string> engine_argv(const Engine& engine,
                                     const std::vector<std::string>& arguments);

}  // namespace dynamiccl
