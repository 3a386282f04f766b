#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "containers/progress.hpp"
#include "containers/running_environment.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// What decides Apptainer's commands besides the profile; from the machine, or by hand in tests.
struct ApptainerSite {
  std::string program;
  std::string image;
  std::string name;        ///< of this environment
  std::string run_folder;  ///< bound into every container
  bool root = false;
  bool gpus = false;  ///< the machine has NVIDIA GPUs
  std::vector<std::string>
      host_folders{};          ///< bound read-only (host_root_binds()), empty otherwise
  std::string library_path{};  ///< LD_LIBRARY_PATH that goes with them, "" = none
  std::string owner{};         ///< owner_token()
};

/// What Apptainer can use on this machine, for an environment of this name.
ApptainerSite apptainer_site(const std::string& name);

/// {"apptainer", "-q", "exec", FLAGS..., IMAGE}: what stands before a rank's or the launcher's
/// argv.
std::vector<std::string> apptainer_exec_argv(const EnvironmentProfile& profile,
                                             const StartRequest& request,
                                             const ApptainerSite& site);

/// Pure. One container holds the ranks of a launcher-inside profile for the whole block of
/// launches; otherwise each rank is a container of its own and nothing runs between launches.
EnvironmentPlan plan_apptainer(const EnvironmentProfile& profile, const StartRequest& request,
                               const ApptainerSite& site);

/// Text of a script that runs its arguments inside the container whose first process wrote its
/// pid to RUN_FOLDER/holder-pid.
std::string enter_script_text(const EnvironmentProfile& profile, const ApptainerSite& site);

std::optional<std::string> apptainer_unavailable_reason(const EnvironmentProfile& profile);
void prepare_apptainer_environment(const Progress& progress);
std::unique_ptr<Environment> start_apptainer(const EnvironmentProfile& profile,
                                             const StartRequest& request);

}  // namespace dynamiccl
