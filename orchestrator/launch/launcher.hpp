#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "containers/start/environment.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// One process to start: argv and what is added to the inherited environment.
struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  /// Its stdin: this, and then open for as long as this process lives, so that the other end of a
  /// connection learns of its death; nullopt = nothing.
  std::optional<std::string> input = std::nullopt;
  /// It runs one rank, and is no launcher: what that rank starts in passing, and ends, says nothing
  /// about whether the rank is there.
  bool is_rank = false;
};

/// What a launcher turns into commands. Pure data.
struct LaunchRequest {
  Backend backend{};
  int ranks = 1;
  int cores = 1;         ///< of this machine, all ranks together
  bool as_root = false;  ///< the launcher runs as root where it runs
  LaunchShape shape;
  std::vector<std::string> worker;                 ///< program and arguments of every rank
  std::string program_folder;                      ///< of the workers and plugins
  std::string run_folder;                          ///< that all ranks of this host see
  std::map<std::string, std::string> environment;  ///< for every rank
  /// Variables of the launcher's own environment that every rank gets, without their values in any
  /// argument, which everybody on a machine may read.
  std::vector<std::string> inherited;
  std::map<std::string, std::string> mca;  ///< Open MPI parameters
  /// GLIBC_TUNABLES that the ranks inherit, which the allocator's settings are joined with.
  std::string inherited_tunables;
  /// Environment::wrap_rank of the environment, for launchers that start each rank themselves.
  std::function<std::vector<std::string>(int rank, const std::vector<std::string>& command,
                                         const std::map<std::string, std::string>& env)>
      wrap_rank;
};

/// How ranks of some backends are started: builds argv, never runs anything.
struct Launcher {
  std::string_view name;     ///< "openmpi"
  std::string_view program;  ///< looked for in PATH where the launcher runs; "" = none is needed
  std::string_view package;  ///< Debian package that brings the program
  std::vector<Command> (*build)(const LaunchRequest& request);
  /// srun's --mpi for the library: under another one its ranks start as so many jobs of one rank,
  /// with exit code 0.
  std::string_view process_management;
};

const Launcher& launcher_for(Backend backend);
/// The same for ranks of that shape: Slurm's where it starts them.
const Launcher& launcher_for(Backend backend, const LaunchShape& shape);

/// Name of the worker executable that links this backend's library.
std::string_view worker_program(Backend backend);
/// The worker that also trains: the one executable of its library that carries libtorch.
std::string trainer_program(Backend backend);

/// Fills environment and mca of `request` from the profile's variables, the profile's settings for
/// the backend ({subnet}, {interface} and {host_address} expanded by the shape, {program_folder}
/// and {run_folder} by the request) and the group's launch-scope knobs; later ones win. The
/// allocator's settings (core/vocabulary/malloc_settings.hpp) become one GLIBC_TUNABLES with what
/// is set there already.
/// @throws Error(environment) when a setting needs a subnet or interface the shape has not,
/// Error(input) for a setting of the allocator that is none
void apply_settings(LaunchRequest& request, const EnvironmentProfile& profile,
                    const std::map<std::string, std::string>& knobs);

/// Variable that tells a process without a launcher which rank it is.
inline constexpr std::string_view kRankVariable = "DYNAMICCL_RANK";

std::vector<Command> build_openmpi(const LaunchRequest& request);
/// Where an Open MPI that takes GPU memory lies (scripts/build_cuda_openmpi.sh): the folder that
/// DYNAMICCL_CUDA_MPI names, else one in the cache, else an unpacked bundle's; "" = the packaged
/// one must do.
std::string cuda_openmpi_prefix();
std::vector<Command> build_mpich(const LaunchRequest& request);
std::vector<Command> build_srun(const LaunchRequest& request);
std::vector<Command> build_local(const LaunchRequest& request);

}  // namespace dynamiccl
