#pragma once

#include <optional>
#include <string>
#include <vector>

#include "containers/engine.hpp"

namespace dynamiccl {

/// Looks, starts nothing. Either an engine, or why there is none and the command that fixes it.
struct EngineSearch {
  std::optional<Engine> engine;
  std::string reason;
  /// One runs here and may be used, but does not answer: a fault, not a machine without an engine.
  bool silent = false;
};

/// What of the machine decides which engine is used; filled by look_at_machine(), by hand in tests.
struct EngineFacts {
  struct Socket {
    std::string path;
    bool permitted = true;  ///< false: it exists, but this user may not open it
    bool answers = false;
    /// Somebody takes connections: a dockerd, or systemd, which starts one when it is spoken to.
    bool listens = false;
  };
  std::vector<Socket> docker_sockets;  ///< the usual ones, then those of running dockerds
  bool docker_client = false;
  bool dockerd = false;
  bool dockerd_starting = false;  ///< one is so young that its socket may still come
  bool dockerd_running = false;   ///< one that is not our private engine, whatever it listens on
  bool podman = false;
  bool catatonit = false;  ///< Podman's init program
  bool root = false;
  bool may_raise_limits = true;  ///< CAP_SYS_RESOURCE
  bool hybrid_cgroups = false;   ///< cgroup v1 with a v2 tree next to it: crun refuses
  std::string user;
  std::string remote_host;     ///< DOCKER_HOST that is no unix socket, "" = none
  std::string private_socket;  ///< of our own engine, running or not
};

EngineFacts look_at_machine();

/// Any running dockerd first, then a dockerd of our own where none runs and we are root, then
/// Podman.
EngineSearch choose_engine(const EngineFacts& facts);

/// An engine as it is called on the nodes of a cluster, with no flags of this machine's: what
/// Podman needs there belongs into the command. Whoever is behind sudo, doas or env decides which
/// one it is; what is named otherwise is taken for Docker.
/// @param command {"docker", "--host", "unix:///..."}, {"sudo", "podman", "--runtime", "runc"}
Engine named_engine(const std::vector<std::string>& command);

/// choose_engine(look_at_machine())
EngineSearch find_engine();

}  // namespace dynamiccl
