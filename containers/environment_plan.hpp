#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "containers/progress.hpp"

namespace dynamiccl {

class ClusterSession;

/// A host as a launcher sees it: a container of its own, or the machine.
struct HostSlot {
  std::string name;     ///< "localhost" or the container's name
  std::string address;  ///< IP address inside the profile's network, 127.0.0.1 on the host's
                        ///< network, "" on bare metal and in Apptainer
  int slots = 1;
  std::string node = {};  ///< the machine that a container on a cluster's node is on, "" = `name`
};

/// How a launcher meets a started environment. Pure data: launchers turn it into argv.
struct LaunchShape {
  std::vector<HostSlot> hosts;
  bool dealt = false;  ///< ranks are numbered over the hosts in turn, not host by host
  /// Before the launcher's own argv (launcher inside the container): {"docker", "exec",
  /// "--interactive", NAME}. Environment goes behind it: {"env", "NAME=VALUE", "mpirun", ...}.
  std::vector<std::string> launcher_prefix;
  /// Before the worker's argv on every rank (launcher outside, hybrid): {"apptainer", "exec", ...,
  /// IMAGE}.
  std::vector<std::string> rank_prefix;
  /// Program that starts a command on a host as `AGENT [options] HOST COMMAND...` (an rsh agent);
  /// visible under this path inside the containers too. Empty when all ranks are on localhost, or
  /// Slurm starts all that is elsewhere.
  std::string launch_agent;
  std::string subnet;        ///< CIDR of the ranks' network, "" = host network
  std::string host_address;  ///< the host's own address in that subnet, 127.0.0.1 without one
  std::string interface;     ///< the ranks' interface in that network ("eth0", "lo")
  /// srun's argv before what a backend adds, where Slurm starts the ranks; empty elsewhere.
  std::vector<std::string> step_prefix;
  /// MPI's own launcher stands inside a Slurm allocation, which starts its daemons (by the
  /// launch_agent, where there is one).
  bool slurm_daemons = false;
  /// In rank_prefix's place for ranks that Slurm starts, where they enter a container that stays.
  std::vector<std::string> step_rank_prefix = {};
  /// Variables of ranks that Slurm starts so, where nobody says otherwise.
  std::map<std::string, std::string> step_environment = {};
  /// Variable that tells step_rank_prefix which others it has to hand on into the container,
  /// besides those of Slurm and PMIx.
  std::string names_variable = {};
  /// Environment of the launcher process itself: marks by which end_ranks() and
  /// Environment::stop() find ranks on this host, whatever session a launcher puts them into.
  std::map<std::string, std::string> launcher_environment;
};

/// What is to be started.
struct StartRequest {
  std::string run_id;  ///< label of everything that is made, so that it can be found and removed
  int ranks = 1;
  std::vector<std::string>
      binds;  ///< folders visible under the same path inside, for writing (run folder)
  std::shared_ptr<ClusterSession> cluster = nullptr;  ///< the ranks' machines; nullptr = this one
  /// Visible like binds, for reading alone: programs that root runs afterwards must not be changed
  /// from inside.
  std::vector<std::string> programs = {};
  /// Follows and ends a start on nodes, which may have to bring them the image first.
  Progress progress = {};
};

/// A folder of the machine, visible under the same path inside.
struct PlannedMount {
  std::string folder;
  bool read_only = false;
};

/// The machine's own folders (read-only), the request's programs (read-only), the environment's
/// ("" = none), the request's: in this order.
std::vector<PlannedMount> planned_mounts(const std::vector<std::string>& host_folders,
                                         const std::string& run_folder,
                                         const StartRequest& request);

struct PlannedNetwork {
  std::string name;                 ///< "" = none is made
  std::vector<std::string> create;  ///< argv
};

struct PlannedContainer {
  std::string name;
  std::string address;  ///< in the plan's network, "127.0.0.1" on the host's, "" in Apptainer
  int ranks = 0;
  std::vector<std::string> run_argv;
};

/// How some ranks, one after the other, are started without a launcher:
/// before..., [flag,] NAME=VALUE..., after..., the rank's own command.
struct RankStart {
  int ranks = 1;
  std::vector<std::string> before;
  std::string flag;                          ///< before every variable, "" = none
  std::map<std::string, std::string> marks;  ///< variables besides the rank's; these win
  std::vector<std::string> after;
  /// All that follows `before` is one word for a shell (ssh).
  bool by_shell = false;
  /// That word's own beginning, before the variables.
  std::vector<std::string> inner = {"env"};
};

/// A file of the environment's folder, executable.
struct PlannedScript {
  std::string file;
  std::string text;
};

/// All that an environment is made of before anything of it is made: what `plan` prints is what an
/// Environment starts. Pure data.
struct EnvironmentPlan {
  std::string name;    ///< of the environment: prefix of everything it makes
  std::string folder;  ///< of the environment, see RunFolder
  std::vector<PlannedScript> scripts;
  std::vector<PlannedMount> mounts;  ///< of every container
  /// Folder of the machine's memory file system that every container has where its profile says
  /// (shared_tmpfs); made with the environment, "" = none.
  std::string tmpfs;
  PlannedNetwork network;
  std::vector<PlannedContainer> containers;
  std::vector<std::string> allocate;  ///< argv that asks Slurm for the nodes, empty = none is asked
  LaunchShape shape;
  std::vector<RankStart> starts;  ///< all ranks
  /// argv that ends every process of a killed launch where this machine's process list does not
  /// reach them; empty = it does. See Environment::end_ranks().
  std::vector<std::string> kill_command;
  /// How long that may take. Containers of this machine are removed right after an interrupt and
  /// after every launch that failed, nodes are not.
  std::chrono::seconds kill_timeout{5};

  /// Every argv that starts the environment, in order.
  [[nodiscard]] std::vector<std::vector<std::string>> commands() const;
  /// argv that runs `command` as rank `rank` without a launcher (Gloo, NCCL), with `env` set
  /// inside.
  /// @throws Error(bug) for a rank that the plan has not
  [[nodiscard]] std::vector<std::string> rank_command(
      int rank, const std::vector<std::string>& command,
      const std::map<std::string, std::string>& env) const;
};

}  // namespace dynamiccl
