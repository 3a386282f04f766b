#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "containers/progress.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

class ClusterSession;

/// A host as a launcher sees it: a container of its own, or the machine.
struct HostSlot {
  std::string name;     ///< "localhost" or the container's name
  std::string address;  ///< IP address inside the profile's network, 127.0.0.1 on the host's
                        ///< network, "" on bare metal and in Apptainer
  int slots = 1;
};

/// How a launcher meets a started environment. Pure data: launchers turn it into argv.
struct LaunchShape {
  std::vector<HostSlot> hosts;
  /// Before the launcher's own argv (launcher inside the container): {"docker", "exec",
  /// "--interactive", NAME}. Environment goes behind it: {"env", "NAME=VALUE", "mpirun", ...}.
  std::vector<std::string> launcher_prefix;
  /// Before the worker's argv on every rank (launcher outside, hybrid): {"apptainer", "exec", ...,
  /// IMAGE}.
  std::vector<std::string> rank_prefix;
  /// Program that starts a command on a host as `AGENT [options] HOST COMMAND...` (an rsh agent);
  /// visible under this path inside the containers too. Empty when all ranks are on localhost.
  std::string launch_agent;
  std::string subnet;        ///< CIDR of the ranks' network, "" = host network
  std::string host_address;  ///< the host's own address in that subnet, 127.0.0.1 without one
  std::string interface;     ///< the ranks' interface in that network ("eth0", "lo")
  /// srun's argv before what a backend adds, where Slurm starts the ranks; empty elsewhere.
  std::vector<std::string> step_prefix;
  /// MPI's own launcher stands inside a Slurm allocation, which starts its daemons.
  bool slurm_daemons = false;
  /// Only Slurm knows where and when: the commands go into a batch script.
  std::vector<std::string> batch_argv;
  /// Environment of the launcher process itself: marks by which kill_commands() and stop() find
  /// ranks on this host, whatever session a launcher puts them into.
  std::map<std::string, std::string> launcher_environment;
};

/// What is to be started.
struct StartRequest {
  std::string run_id;  ///< label of everything that is made, so that it can be found and removed
  int ranks = 1;
  std::vector<std::string>
      binds;  ///< folders visible under the same path inside (build folder, run folder)
  std::shared_ptr<ClusterSession> cluster = nullptr;  ///< the ranks' machines; nullptr = this one
};

/// A profile brought to life for a block of launches. stop() (also by the destructor) leaves
/// nothing behind: no process, container, network, mount or socket; what could not be removed is in
/// the error.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual LaunchShape shape() const = 0;
  /// argv that runs `command` as rank `rank` without a launcher (Gloo, NCCL), with `env` set
  /// inside.
  virtual std::vector<std::string> wrap_rank(
      int rank, const std::vector<std::string>& command,
      const std::map<std::string, std::string>& env) const = 0;
  /// argvs that end every process of a killed launch, the containers stay. Run them after the
  /// launcher's process group was killed: launchers put ranks into groups of their own.
  virtual std::vector<std::vector<std::string>> kill_commands() const = 0;
  /// Engine, version, image and digest, container ids, network, flags: provenance of each launch
  /// (no secrets).
  virtual nlohmann::json provenance() const = 0;
  /// probe_host() of each host that the ranks run on, where that is not this machine; empty = it is,
  /// or nobody could ask.
  virtual std::vector<nlohmann::json> host_facts() const { return {}; }
  virtual void stop() = 0;
};

/// True for a user who can only make user namespaces (not root, no setuid Apptainer): such a user
/// runs a profile's unprivileged_variant, see profile_for_user().
bool only_user_namespaces();

/// Why a profile cannot run here, e.g. "no container engine: apt-get install docker.io"; nullopt
/// when it can. Never installs anything; may look at the machine (sockets, binaries).
std::optional<std::string> unavailable_reason(const EnvironmentProfile& profile);

/// Makes what the profile needs once per machine: private engine where none runs, worker image.
/// Idempotent, quick when done before.
/// @throws UnsupportedError with the reason when the profile cannot run here, Error(environment)
/// when it could but did not come up or was interrupted; both name the exact command that would
/// mend it
void prepare(const EnvironmentProfile& profile, const Progress& progress);

/// @throws Error(environment) when a container cannot start; whatever was started is removed first
std::unique_ptr<Environment> start_environment(const EnvironmentProfile& profile,
                                               const StartRequest& request);

/// The commands start_environment would run, for `plan` (exact argv; nothing is started).
std::vector<std::vector<std::string>> start_commands(const EnvironmentProfile& profile,
                                                     const StartRequest& request);
/// The shape those commands would lead to, for `plan`.
LaunchShape planned_shape(const EnvironmentProfile& profile, const StartRequest& request);
/// What wrap_rank() of that environment would return, for `plan`.
std::vector<std::string> planned_rank_command(const EnvironmentProfile& profile,
                                              const StartRequest& request, int rank,
                                              const std::vector<std::string>& command,
                                              const std::map<std::string, std::string>& env);

/// Removes containers, networks, mounts and private engines left by runs that are no longer alive.
/// @returns one line per thing removed
std::vector<std::string> clean_leftovers();

}  // namespace dynamiccl
