#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/detect/promise.hpp"

namespace dynamiccl {

/// With whom a rank shares a namespace (or the network). `shared`: the ranks' containers share one
/// of their own, apart from the host's; the bridge networks are `private_` network namespaces
/// joined by a bridge.
DYN_NAMED_ENUM(Sharing, "sharing", '-', host, shared, private_);
/// Where the MPI launcher runs: outside and enters a container per rank, or inside the one
/// container.
DYN_NAMED_ENUM(LauncherPlace, "launcher place", '-', outside, inside);
/// Which GPUs a rank's container sees.
DYN_NAMED_ENUM(GpuVisibility, "gpu visibility", '-', none, one_per_rank, all);
/// What a profile's `kind` may say: the environments of ranks that run, in their order, and that of
/// ranks that SimGrid simulates.
DYN_NAMED_ENUM(ProfileKind, "environment", '-', bare_metal, singularity, single_docker,
               cross_docker, simulated);
/// A Linux capability given to containers, never without saying what for.
struct Capability {
  std::string name;    ///< "SYS_PTRACE"
  std::string reason;  ///< "process_vm_readv (CMA) between ranks"
};

/// A setting a backend needs in this environment, with the reason it is set.
/// No profile has one of a call.
struct BackendSetting : Setting {
  std::string reason;
};

/// What containers of Docker or Podman are given besides: flags of the engine's `run`.
struct ContainerOptions {
  Bytes memory;                          ///< limit of memory, and of memory with swap; 0 = none
  int pids = 0;                          ///< most processes and threads; 0 = none is said
  std::vector<std::string> ulimits;      ///< "nofile=64"
  int mtu = 0;                           ///< of the containers' own network; 0 = the engine's
  std::string image;                     ///< one that the engine has; "" = ours
  std::vector<std::string> mounts;       ///< "/data:/data:ro"
  std::vector<std::string> docker_args;  ///< behind all flags of ours
  bool operator==(const ContainerOptions&) const = default;
};

/// One environment as data (profiles/environments/*.toml). A variant is another file or an override
/// in the experiment, never another branch in code.
struct EnvironmentProfile {
  std::string name;  ///< "cross-docker-host-network"
  EnvironmentKind kind = EnvironmentKind::bare_metal;
  std::string description;
  int ranks_per_container = 0;  ///< 0: all ranks in one container; 1: one container per rank
  Sharing network = Sharing::host;
  Sharing ipc = Sharing::host;
  Sharing uts = Sharing::host;
  Sharing pid = Sharing::host;
  Sharing user = Sharing::host;
  Bytes shm_size;  ///< of a private /dev/shm; 0 = the engine's default
  /// Where every container has one folder of the machine's memory file system, made for this
  /// environment alone ("/dev/shm", "/run/job"); "" = nowhere.
  std::string shared_tmpfs;
  std::string cpus;                 ///< CPUs of every container as in cpuset(7), "0-3,8"; "" = all
  std::optional<double> cpu_limit;  ///< CPU time a container may take, in cores; nullopt = no quota
  std::vector<Capability> capabilities;
  std::vector<std::string> security_options;  ///< "seccomp=unconfined"
  ContainerOptions options;
  LauncherPlace launcher = LauncherPlace::outside;
  GpuVisibility gpus = GpuVisibility::none;
  std::map<std::string, std::string> environment;  ///< for every rank
  std::map<Backend, std::vector<BackendSetting>> backend_settings;
  /// Egress cap of every rank's container link (tbf); nullopt = none. Bits per second.
  std::optional<double> link_bits_per_s;
  std::string declared_aggregation;  ///< in-network aggregation the user declares, "" = none;
                                     ///< marked as declared
  /// The profile that takes this one's place for a user who may only make user namespaces (not
  /// root, no setuid engine); empty: none is needed or none exists.
  std::string unprivileged_variant;
  /// Of the kind `simulated`: the machine's name or file as it was given, and, once an experiment
  /// is loaded, its text (profiles/machines); "" = ranks run here. Their `kind` is then bare metal.
  std::string machine;
  std::string machine_toml;
  std::string cluster;  ///< how ranks get to which number of other machines, "" = all on this one;
                        ///< part of a group's identity, never read from a profile's file

  [[nodiscard]] bool simulated() const { return !machine.empty(); }
  /// As its file says it.
  [[nodiscard]] ProfileKind profile_kind() const {
    return simulated() ? ProfileKind::simulated : static_cast<ProfileKind>(kind);
  }
  /// Containers of Docker or Podman.
  [[nodiscard]] bool in_engine() const {
    return kind == EnvironmentKind::single_docker || kind == EnvironmentKind::cross_docker;
  }
};

/// Reads every *.toml of the folders; later folders override earlier ones by name.
/// @param notes where not null, gets a line "file:line:col: ..." of each old spelling that still
/// reads
/// @throws Error(input) with file:line:col, what was expected and the nearest known key
std::map<std::string, EnvironmentProfile> load_profiles(const std::vector<std::string>& folders,
                                                        std::vector<std::string>* notes = nullptr);

/// Parses one profile's TOML text; `source` names it in errors. `known` are the profiles that
/// `extends = "NAME"` may start from; `notes` as above.
/// @throws Error(input) with source:line:col
EnvironmentProfile parse_profile(const std::string& toml_text, const std::string& source,
                                 const std::map<std::string, EnvironmentProfile>& known = {},
                                 std::vector<std::string>* notes = nullptr);

/// @throws Error(input) listing the known profiles, with the nearest one suggested
const EnvironmentProfile& find_profile(const std::map<std::string, EnvironmentProfile>& profiles,
                                       const std::string& name);

/// The profile itself, or its unprivileged_variant where `unprivileged`.
const EnvironmentProfile& profile_for_user(
    const std::map<std::string, EnvironmentProfile>& profiles, const std::string& name,
    bool unprivileged);

/// What a launch under this profile must find true on every rank (check_promise in
/// profiles/detect compares it with the detected facts).
ProfilePromise promise_of(const EnvironmentProfile& profile);

/// The resolved profile as canonical JSON text: stored with every group, and what its id is made
/// from.
std::string to_json(const EnvironmentProfile& profile);
/// A stored profile as people read it: its settings spelled as in profiles. What is no profile is
/// returned as it is.
nlohmann::json shown_profile(nlohmann::json stored);

/// Every key of the profile but its name as TOML lines: below `name = "..."` a profile file, below
/// [profile.NAME] with `extends` a part of an experiment.
std::string to_toml_keys(const EnvironmentProfile& profile);

/// The profile of such a text, for the replay of a stored launch.
/// @throws Error(data) when the text is no profile of this version
EnvironmentProfile profile_from_json(const std::string& text);

}  // namespace dynamiccl
