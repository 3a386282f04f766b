#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "containers/environment.hpp"
#include "containers/image.hpp"

namespace dynamiccl {

/// What decides Apptainer's commands besides the profile; from the machine, or by hand in tests.
struct ApptainerSite {
  std::string program;
  std::string image;
  std::string name;        ///< of this environment
  std::string run_folder;  ///< bound into every container, "" = none
  bool root = false;
  bool gpus = false;  ///< the machine has NVIDIA GPUs
  std::vector<std::string>
      host_folders{};          ///< bound read-only (host_root_binds()), empty otherwise
  std::string library_path{};  ///< LD_LIBRARY_PATH that goes with them, "" = none
};

/// What this machine has, for an environment of that name.
ApptainerSite apptainer_site(const std::string& name);

/// {"apptainer", "-q", "exec", FLAGS..., IMAGE}: what stands before a rank's or the launcher's
/// argv.
std::vector<std::string> apptainer_exec_argv(const EnvironmentProfile& profile,
                                             const StartRequest& request,
                                             const ApptainerSite& site);

/// Hosts, prefixes: pure.
LaunchShape apptainer_shape(const EnvironmentProfile& profile, const StartRequest& request,
                            const ApptainerSite& site);

/// Text of a script that runs its arguments inside the container whose first process wrote its
/// pid to RUN_FOLDER/holder-pid.
std::string enter_script_text(const EnvironmentProfile& profile, const ApptainerSite& site);

std::optional<std::string> apptainer_unavailable_reason(const EnvironmentProfile& profile);
void prepare_apptainer_environment(const Progress& progress);
std::unique_ptr<Environment> start_apptainer(const EnvironmentProfile& profile,
                                             const StartRequest& request);
LaunchShape apptainer_planned_shape(const EnvironmentProfile& profile, const StartRequest& request);
std::vector<std::string> apptainer_planned_rank(const EnvironmentProfile& profile,
                                                const StartRequest& request, int rank,
                                                const std::vector<std::string>& command,
                                                const std::map<std::string, std::string>& env);

}  // namespace dynamiccl
