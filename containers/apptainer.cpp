#include "containers/apptainer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "containers/command.hpp"
#include "containers/gpu.hpp"
#include "containers/host_root.hpp"
#include "containers/image.hpp"
#include "containers/local_ranks.hpp"
#include "containers/owner.hpp"
#include "containers/paths.hpp"
#include "containers/processes.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Not in a folder that this user may not look into.
bool is_there(const std::string& path) {
  std::error_code unseen;
  return std::filesystem::exists(path, unseen);
}

std::string image_name(const std::string& image) {
  return std::filesystem::path(image).filename().string();
}

bool in_one_container(const EnvironmentProfile& profile) {
  return profile.launcher == LauncherPlace::inside || profile.ranks_per_container == 0;
}

/// What stands before a rank that is started without a launcher.
std::vector<std::string> rank_prefix(const EnvironmentProfile& profile, const ApptainerSite& site,
                                     const std::vector<std::string>& exec) {
  return in_one_container(profile) ? std::vector<std::string>{site.run_folder + "/enter"} : exec;
}

/// Ranks with a UTS namespace each differ in their host names, as instances of a cluster's users
/// do.
bool has_own_host_names(const EnvironmentProfile& profile) {
  return profile.uts != Sharing::host && !in_one_container(profile);
}

/// Text of a script that runs its arguments in a container whose host name no other one has.
std::string own_name_script_text(const std::string& name, const std::vector<std::string>& exec) {
  std::string words;
  for (std::size_t i = 0; i < exec.size(); ++i) {
    const bool is_name = i > 0 && exec[i - 1] == "--hostname";
    words += (is_name ? "\"" + name + "-$$\"" : shell_quote(exec[i])) + " ";
  }
  return "#!/bin/sh\n# Runs its arguments in a container with a host name of its own.\nexec " +
         words + "\"$@\"\n";
}

/// Starts the container that stays, away from this process. The marks are in its environment.
std::vector<std::string> holder_argv(const ApptainerSite& site,
                                     const std::vector<std::string>& exec) {
  std::vector<std::string> argv{"env"};
  for (const auto& [name, value] : rank_marks(site.name, site.owner))
    argv.push_back(name + "=" + value);
  argv.insert(argv.end(), {"setsid", "--fork"});
  argv.insert(argv.end(), exec.begin(), exec.end());
  argv.insert(argv.end(), {"sleep", "infinity"});
  return argv;
}

class ApptainerEnvironment : public Environment {
 public:
  ApptainerEnvironment(EnvironmentProfile profile, const StartRequest& request)
      : Environment(request), profile_(std::move(profile)), site_(apptainer_site(name())) {
    use_plan(plan_apptainer(profile_, request, site_));
    exec_ = apptainer_exec_argv(profile_, request, site_);
    version_ = checked_output("cannot start Apptainer", {site_.program, "--version"});
    package_ = apptainer_package_facts(find_apptainer());
    image_ = apptainer_image_facts();
    try {
      for (const PlannedContainer& holder : plan().containers) start_holder(holder);
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ApptainerEnvironment() override { end_marked_processes(name()); }

  nlohmann::json provenance() const override {
    nlohmann::json facts = {
        {"engine", "apptainer"},
        {"engine_version", version_},
        {"engine_program", site_.program},
        {"engine_package", package_},
        {"launcher", profile_.launcher == LauncherPlace::inside ? "inside" : "outside"},
        {"exec_argv", command_line(exec_)}};
    facts.update(image_);
    return facts;
  }

  void end_ranks() const override { end_local_ranks(name()); }
  void stop() override {
    end_marked_processes(name());
    remove_folder();
  }

 private:
  void start_holder(const PlannedContainer& holder) const {
    const std::string log = plan().folder + "/holder.log";
    CommandOptions options;
    options.output_file = log;
    checked_output("cannot start Apptainer", holder.run_argv, options);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      const std::string pid = holder_pid();
      if (!pid.empty()) {
        std::ofstream(plan().folder + "/holder-pid") << pid << "\n";
        return;
      }
      if (const std::string text = file_text(log); text.find("FATAL") != std::string::npos) break;
      usleep(10000);
    }
    throw Error(ErrorKind::environment,
                fmt::format("profile {}: no container from `{}`: {}", profile_.name,
                            command_line(exec_), trim(file_text(log))));
  }

  [[nodiscard]] std::string holder_pid() const {
    for (const ProcessInfo& process : list_processes())
      if (process.name == "sleep" && process.argv.size() == 2 && process.argv[1] == "infinity" &&
          process_variable(process.pid, kEnvironmentVariable) == name())
        return std::to_string(process.pid);
    return "";
  }

  EnvironmentProfile profile_;
  ApptainerSite site_;
  std::vector<std::string> exec_;
  std::string version_;
  nlohmann::json package_;
  nlohmann::json image_;
};

std::optional<std::string> profile_reason(const EnvironmentProfile& profile) {
  if (profile.network != Sharing::host)
    return "Apptainer containers keep the host's network here: use network = \"host\"";
  for (const Sharing sharing : {profile.ipc, profile.uts, profile.pid})
    if (sharing == Sharing::shared && profile.ranks_per_container > 0)
      return "Apptainer cannot join another container's namespaces: use \"host\" or \"private\", "
             "or ranks_per_container = 0";
  if (!profile.capabilities.empty() || !profile.security_options.empty())
    return "capabilities and security options are for Docker profiles; Apptainer ranks have none";
  if (profile.link_bits_per_s) return "link_bits_per_s needs a network of the containers' own";
  return std::nullopt;
}

std::string install_hint(const std::string& packages) {
  return fmt::format("{}apt-get install -y --no-install-recommends {}", is_root() ? "" : "sudo ",
                     packages);
}

}  // namespace

ApptainerSite apptainer_site(const std::string& name) {
  const ApptainerInstall install = find_apptainer();
  ApptainerSite site;
  site.program =
      install.program.empty() ? cache_folder() + "/apptainer/bin/apptainer" : install.program;
  site.image = apptainer_image();
  site.name = name;
  site.run_folder = RunFolder::path_of(name);
  site.owner = owner_token();
  site.root = is_root();
  site.gpus = !find_gpus().empty();
  if (host_root_wanted()) {
    site.host_folders = host_root_binds();
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) site.library_path = path;
  }
  return site;
}

std::vector<std::string> apptainer_exec_argv(const EnvironmentProfile& profile,
                                             const StartRequest& request,
                                             const ApptainerSite& site) {
  std::vector<std::string> argv{site.program, "-q", "exec"};
  if (profile.user == Sharing::private_) argv.emplace_back("--userns");
  // Without CAP_SYS_RESOURCE root may not hand all capabilities on, and ranks need none, of a user
  // namespace of their own either.
  if (site.root) argv.emplace_back("--no-privs");
  if (profile.ipc != Sharing::host) argv.emplace_back("--ipc");
  if (profile.pid != Sharing::host) argv.emplace_back("--pid");
  if (profile.uts != Sharing::host) argv.insert(argv.end(), {"--uts", "--hostname", site.name});
  // With the machine's own folders the driver's libraries are there already.
  if (site.gpus && site.host_folders.empty() && profile.gpus != GpuVisibility::none)
    argv.emplace_back("--nv");
  // Apptainer hands every variable on but this one.
  if (!site.library_path.empty())
    argv.insert(argv.end(), {"--env", "LD_LIBRARY_PATH=" + site.library_path});
  for (const PlannedMount& mount : planned_mounts(site.host_folders, site.run_folder, request))
    argv.insert(argv.end(), {"--bind", mount.read_only ? mount.folder + ":" + mount.folder + ":ro"
                                                       : mount.folder});
  if (!profile.shared_tmpfs.empty())
    argv.insert(argv.end(),
                {"--bind", RunFolder::tmpfs_of(site.name) + ":" + profile.shared_tmpfs});
  argv.push_back(site.image);
  return argv;
}

EnvironmentPlan plan_apptainer(const EnvironmentProfile& profile, const StartRequest& request,
                               const ApptainerSite& site) {
  const auto exec = apptainer_exec_argv(profile, request, site);
  const bool own_names = has_own_host_names(profile);
  const auto start = own_names ? std::vector<std::string>{site.run_folder + "/own-name"} : exec;
  EnvironmentPlan plan = plan_local_ranks(request, site.name, site.run_folder, site.owner,
                                          rank_prefix(profile, site, start));
  plan.scripts.push_back({"enter", enter_script_text(profile, site)});
  if (own_names) plan.scripts.push_back({"own-name", own_name_script_text(site.name, exec)});
  plan.mounts = planned_mounts(site.host_folders, site.run_folder, request);
  if (!profile.shared_tmpfs.empty()) plan.tmpfs = RunFolder::tmpfs_of(site.name);
  if (in_one_container(profile))
    plan.containers = {{site.name, "", request.ranks, holder_argv(site, exec)}};
  if (profile.launcher == LauncherPlace::inside)
    plan.shape.launcher_prefix = exec;
  else
    plan.shape.rank_prefix = start;
  return plan;
}

std::string enter_script_text(const EnvironmentProfile& profile, const ApptainerSite& site) {
  std::string namespaces = "--mount --root";
  if (profile.user == Sharing::private_) namespaces += " --user --preserve-credentials";
  if (profile.ipc != Sharing::host) namespaces += " --ipc";
  if (profile.uts != Sharing::host) namespaces += " --uts";
  if (profile.pid != Sharing::host) namespaces += " --pid";
  // Root's capabilities do not follow into a container that was started without any.
  const char* drop = site.root ? "setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "
                               : "setpriv --no-new-privs ";
  return fmt::format(
      "#!/bin/sh\n"
      "# Runs its arguments inside the running container, as `apptainer exec` would.\n"
      "pid=$(cat {}/holder-pid) || exit 1\n"
      "exec nsenter --target \"$pid\" {} {}env --chdir=\"$PWD\" APPTAINER_CONTAINER={} "
      "APPTAINER_NAME={} SINGULARITY_CONTAINER={} SINGULARITY_NAME={} \"$@\"\n",
      shell_quote(site.run_folder), namespaces, drop, shell_quote(site.image),
      shell_quote(image_name(site.image)), shell_quote(site.image),
      shell_quote(image_name(site.image)));
}

std::optional<std::string> apptainer_unavailable_reason(const EnvironmentProfile& profile) {
  if (auto reason = profile_reason(profile)) return reason;
  const bool private_user = profile.user == Sharing::private_;
  if (!private_user && only_user_namespaces())
    return "an ordinary user without a setuid Apptainer can only make user namespaces: use "
           "singularity-userns-inside or singularity-userns, or start dynamiccl with sudo";
  if (private_user && run_command({"unshare", "--user", "true"}).exit_code != 0)
    return "this machine lets nobody make user namespaces: sudo sysctl "
           "user.max_user_namespaces=65536 (and kernel.apparmor_restrict_unprivileged_userns=0 "
           "where it exists)";
  if (find_apptainer().program.empty()) {
    if (find_program("apt-get").empty())
      return "Apptainer is not installed: see https://apptainer.org/docs/admin/latest";
    if (find_program("patchelf").empty())
      return "Apptainer is fetched with patchelf: " + install_hint("patchelf");
  }
  const bool image_there =
      host_root_wanted() || !named_apptainer_image().empty() || is_there(apptainer_image());
  if (!image_there && find_program("mmdebstrap").empty())
    return "the worker image is made with mmdebstrap: " + install_hint("mmdebstrap uidmap");
  return std::nullopt;
}

void prepare_apptainer_environment(const Progress& progress) {
  const std::string named = named_apptainer_image();
  // Apptainer also takes images from elsewhere: docker://NAME.
  const bool is_path = named.find("://") == std::string::npos;
  if (!named.empty() && is_path && !is_there(named))
    throw Error(ErrorKind::environment,
                fmt::format("there is no image {}, which DYNAMICCL_APPTAINER_IMAGE names: build it "
                            "from containers/images/worker.def, or unset the variable",
                            named));
  prepare_apptainer(progress);
  if (!named.empty()) return;
  if (host_root_wanted()) return make_host_root();
  if (!is_there(apptainer_image())) prepare_worker_image(progress);
}

std::unique_ptr<Environment> start_apptainer(const EnvironmentProfile& profile,
                                             const StartRequest& request) {
  return std::make_unique<ApptainerEnvironment>(profile, request);
}

}  // namespace dynamiccl
