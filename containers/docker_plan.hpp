#pragma once

#include <string>
#include <vector>

#include "containers/engine.hpp"
#include "containers/environment_plan.hpp"
#include "containers/gpu.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// What decides the commands besides profile and request; from the machine, or by hand in tests.
struct DockerSite {
  std::string name;        ///< of this environment: prefix of every container and of the network
  std::string run_folder;  ///< bound into every container
  std::string owner;       ///< owner_token()
  std::string image;
  std::string subnet_prefix;  ///< "172.30.7": the network is PREFIX.0/24, the host PREFIX.1
  std::string user;           ///< "UID:GID" of an ordinary user, "" for root
  std::vector<GpuDevice> gpus;
  GpuPassing gpu_passing = GpuPassing::devices;
  std::vector<std::string>
      host_folders{};          ///< bound read-only (host_root_binds()), empty otherwise
  std::string library_path{};  ///< LD_LIBRARY_PATH that goes with them, "" = none
  /// What the container runs while it stays, with its standard input held open by the engine's
  /// client; empty = it stays by itself until it is removed.
  std::vector<std::string> held{};
  std::vector<std::string> run_flags{};  ///< further ones of every container
};

/// Pure: the same inputs give the same commands.
/// @throws Error(input) when the profile asks for what no engine can do (launcher inside several
/// containers, more containers than the network has addresses)
EnvironmentPlan plan_docker(const Engine& engine, const EnvironmentProfile& profile,
                            const StartRequest& request, const DockerSite& site);

/// Text of the launch agent: an rsh agent for mpirun and mpiexec.
std::string launch_agent_text(const Engine& engine);

/// First PREFIX.0/24 of 172.30.0.0/16 free of `routes` (destinations of the host's routes, host
/// byte order), searched from a place that `name` decides so that concurrent runs rarely meet;
/// `skip` steps further after a collision.
std::string free_subnet_prefix(const std::string& name, const std::vector<unsigned>& routes,
                               int skip);

}  // namespace dynamiccl
