#include "containers/docker_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "containers/command.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "embedded/end_container_ranks_sh.hpp"

namespace dynamiccl {
namespace {

constexpr int kFirstAddress = 10;
constexpr int kMostContainers = 240;  // PREFIX.10 to PREFIX.249

void append(std::vector<std::string>& argv, std::initializer_list<std::string> more) {
  argv.insert(argv.end(), more);
}

std::vector<std::string> labels(const StartRequest& request, const DockerSite& site) {
  std::vector<std::string> marks{"--label", "dynamiccl.run=" + request.run_id};
  // On another machine nobody can tell whether an owner of this one is alive.
  if (!site.owner.empty()) append(marks, {"--label", "dynamiccl.owner=" + site.owner});
  return marks;
}

std::string container_name(const DockerSite& site, int index) {
  return fmt::format("{}-{}", site.name, index);
}

/// A namespace flag: host, private (the engine's default where `alone` is empty), shared with the
/// first container.
void add_namespace(std::vector<std::string>& argv, const std::string& flag, Sharing sharing,
                   const std::string& alone, const std::string& first_of_shared,
                   const std::string& owner) {
  if (sharing == Sharing::host)
    append(argv, {flag, "host"});
  else if (sharing == Sharing::shared && !owner.empty())
    append(argv, {flag, "container:" + owner});
  else if (sharing == Sharing::shared && !first_of_shared.empty())
    append(argv, {flag, first_of_shared});
  else if (!alone.empty())
    append(argv, {flag, alone});
}

class Planner {
 public:
  Planner(const Engine& engine, const EnvironmentProfile& profile, const StartRequest& request,
          const DockerSite& site)
      : engine_(engine), profile_(profile), request_(request), site_(site) {}

  EnvironmentPlan plan() {
    const int per_container =
        profile_.ranks_per_container > 0 ? profile_.ranks_per_container : request_.ranks;
    const int count = (request_.ranks + per_container - 1) / per_container;
    refuse_impossible(count);
    EnvironmentPlan plan;
    plan.name = site_.name;
    plan.folder = site_.run_folder;
    plan.scripts = {{"launch-agent", launch_agent_text(engine_)},
                    {"end-ranks", std::string(embedded::end_container_ranks_sh)}};
    plan.mounts = planned_mounts(site_.host_folders, site_.run_folder, request_);
    if (!profile_.shared_tmpfs.empty()) plan.tmpfs = RunFolder::tmpfs_of(site_.name);
    if (profile_.network != Sharing::host) plan.network = {site_.name, network_create()};
    std::string kill;
    for (int index = 0; index < count; ++index) {
      const std::string name = container_name(site_, index);
      const int ranks = std::min(per_container, request_.ranks - index * per_container);
      plan.containers.push_back({name, address(index), ranks, run_argv(index, count)});
      plan.starts.push_back({ranks, engine_argv(engine_, {"exec"}), "--env", {}, {name}});
      kill += command_line(engine_argv(
                  engine_, {"exec", name, "/bin/sh", site_.run_folder + "/end-ranks"})) +
              " & ";
    }
    // In all containers at once.
    plan.kill_command = {"/bin/sh", "-c", kill + "wait"};
    plan.shape = shape(plan);
    return plan;
  }

 private:
  void refuse_impossible(int count) const {
    if (count > 1 && profile_.launcher == LauncherPlace::inside)
      throw Error(
          ErrorKind::input,
          fmt::format("profile {}: {} containers, but launcher = \"inside\" needs all ranks "
                      "in one: set launcher = \"outside\" or ranks_per_container = 0",
                      profile_.name, count));
    if (count > kMostContainers)
      throw Error(ErrorKind::input,
                  fmt::format("profile {}: {} containers, but its network has addresses for {}: "
                              "raise ranks_per_container",
                              profile_.name, count, kMostContainers));
  }

  [[nodiscard]] std::string subnet() const { return site_.subnet_prefix + ".0/24"; }

  [[nodiscard]] std::vector<std::string> network_create() const {
    auto argv = engine_argv(engine_, {"network", "create"});
    const auto marks = labels(request_, site_);
    argv.insert(argv.end(), marks.begin(), marks.end());
    if (const int mtu = profile_.options.mtu; mtu > 0)
      append(argv, {"--opt", fmt::format("com.docker.network.driver.mtu={}", mtu)});
    append(argv, {"--subnet", subnet(), "--gateway", site_.subnet_prefix + ".1", site_.name});
    return argv;
  }

  [[nodiscard]] std::string address(int index) const {
    if (profile_.network == Sharing::host) return "127.0.0.1";
    const int owner = profile_.network == Sharing::shared ? 0 : index;
    return fmt::format("{}.{}", site_.subnet_prefix, kFirstAddress + owner);
  }

  [[nodiscard]] std::vector<std::string> run_argv(int index, int count) const {
    const std::string name = container_name(site_, index);
    const bool held = !site_.held.empty();
    auto argv =
        engine_argv(engine_, {"run", held ? "--interactive" : "--detach", "--rm", "--name", name});
    // Orphans of a launch need a parent that collects them; a joined pid namespace has one.
    const bool own_pids =
        profile_.pid == Sharing::private_ || (profile_.pid == Sharing::shared && index == 0);
    if (own_pids) argv.emplace_back("--init");
    const auto marks = labels(request_, site_);
    argv.insert(argv.end(), marks.begin(), marks.end());
    argv.insert(argv.end(), engine_.run_flags.begin(), engine_.run_flags.end());
    argv.insert(argv.end(), site_.run_flags.begin(), site_.run_flags.end());
    add_network(argv, index);
    add_namespaces(argv, index);
    add_permissions(argv);
    const auto mounts = planned_mounts(site_.host_folders, site_.run_folder, request_);
    for (const PlannedMount& mount : mounts)
      if (mount.read_only) append(argv, {"--volume", mount.folder + ":" + mount.folder + ":ro"});
    if (!site_.library_path.empty())
      append(argv, {"--env", "LD_LIBRARY_PATH=" + site_.library_path});
    add_gpus(argv, visible_gpus(index, count));
    for (const PlannedMount& mount : mounts)
      if (!mount.read_only) append(argv, {"--volume", mount.folder + ":" + mount.folder});
    if (!profile_.shared_tmpfs.empty())
      append(argv, {"--volume", RunFolder::tmpfs_of(site_.name) + ":" + profile_.shared_tmpfs});
    add_options(argv);
    if (held)
      argv.insert(argv.end(), site_.held.begin(), site_.held.end());
    else
      append(argv, {"sleep", "infinity"});
    return argv;
  }

  void add_network(std::vector<std::string>& argv, int index) const {
    const bool joins = profile_.network == Sharing::shared && index > 0;
    if (profile_.network == Sharing::host)
      append(argv, {"--network", "host"});
    else if (joins)
      append(argv, {"--network", "container:" + container_name(site_, 0)});
    else
      append(argv, {"--network", site_.name, "--ip", address(index)});
    // A joined network brings its owner's host name.
    if (profile_.uts == Sharing::private_ && !joins)
      append(argv, {"--hostname", container_name(site_, index)});
  }

  void add_namespaces(std::vector<std::string>& argv, int index) const {
    const std::string owner = index > 0 ? container_name(site_, 0) : "";
    add_namespace(argv, "--ipc", profile_.ipc, "private", "shareable", owner);
    add_namespace(argv, "--pid", profile_.pid, "", "", owner);
    add_namespace(argv, "--uts", profile_.uts, "", "", owner);
    const bool joins_ipc = profile_.ipc == Sharing::shared && index > 0;
    // Who joins /dev/shm cannot size it; the host's has its size already.
    if (profile_.shm_size.count() > 0 && profile_.ipc != Sharing::host && !joins_ipc)
      append(argv, {"--shm-size", fmt::format("{}b", profile_.shm_size.count())});
    if (!profile_.cpus.empty()) append(argv, {"--cpuset-cpus", profile_.cpus});
    if (profile_.cpu_limit) append(argv, {"--cpus", fmt::format("{}", *profile_.cpu_limit)});
  }

  /// Flags that the profile gives by themselves, and the image, which stands behind all flags.
  void add_options(std::vector<std::string>& argv) const {
    const ContainerOptions& options = profile_.options;
    // Swap would let ranks crawl where the limit is to be met.
    if (options.memory.count() > 0) {
      const std::string limit = fmt::format("{}b", options.memory.count());
      append(argv, {"--memory", limit, "--memory-swap", limit});
    }
    if (options.pids > 0) append(argv, {"--pids-limit", fmt::format("{}", options.pids)});
    for (const auto& limit : options.ulimits) append(argv, {"--ulimit", limit});
    for (const auto& mount : options.mounts) append(argv, {"--volume", mount});
    if (!options.image.empty()) append(argv, {"--pull", "never"});
    argv.insert(argv.end(), options.docker_args.begin(), options.docker_args.end());
    argv.push_back(options.image.empty() ? site_.image : options.image);
  }

  void add_permissions(std::vector<std::string>& argv) const {
    for (const Capability& capability : profile_.capabilities)
      append(argv, {"--cap-add", capability.name});
    for (const std::string& option : profile_.security_options)
      append(argv, {"--security-opt", option});
    if (site_.user.empty())
      // Open MPI refuses to run as root otherwise; inside its container root is a plain user.
      append(argv,
             {"--env", "OMPI_ALLOW_RUN_AS_ROOT=1", "--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
    else
      append(argv, {"--user", site_.user, "--env", "HOME=/tmp"});
  }

  void add_gpus(std::vector<std::string>& argv, const std::vector<GpuDevice>& gpus) const {
    const auto flags = gpu_flags(gpus, site_.gpu_passing, engine_.kind);
    for (std::size_t i = 0; i + 1 < flags.size(); i += 2) {
      // The driver's libraries have come with the machine's folders.
      if (!site_.host_folders.empty() && flags[i] == "--volume") continue;
      append(argv, {flags[i], flags[i + 1]});
    }
  }

  [[nodiscard]] std::vector<GpuDevice> visible_gpus(int index, int count) const {
    if (profile_.gpus == GpuVisibility::none) return {};
    if (profile_.gpus == GpuVisibility::all || count == 1) return site_.gpus;
    if (site_.gpus.empty()) return {};
    return {site_.gpus[static_cast<std::size_t>(index) % site_.gpus.size()]};
  }

  [[nodiscard]] LaunchShape shape(const EnvironmentPlan& plan) const {
    LaunchShape shape;
    const bool host_network = profile_.network == Sharing::host;
    shape.subnet = host_network ? "" : subnet();
    shape.host_address = host_network ? "127.0.0.1" : site_.subnet_prefix + ".1";
    shape.interface = host_network ? "lo" : "eth0";
    if (profile_.launcher == LauncherPlace::inside) {
      const PlannedContainer& only = plan.containers.front();
      shape.hosts = {{"localhost", only.address, only.ranks}};
      shape.launcher_prefix = engine_argv(engine_, {"exec", "--interactive", only.name});
      return shape;
    }
    for (const PlannedContainer& container : plan.containers)
      shape.hosts.push_back({container.name, container.address, container.ranks});
    shape.launch_agent = site_.run_folder + "/launch-agent";
    // What a killed mpirun leaves of its session on this machine goes with the folder.
    shape.launcher_environment["OMPI_MCA_orte_tmpdir_base"] = site_.run_folder;
    return shape;
  }

  const Engine& engine_;
  const EnvironmentProfile& profile_;
  const StartRequest& request_;
  const DockerSite& site_;
};

}  // namespace

EnvironmentPlan plan_docker(const Engine& engine, const EnvironmentProfile& profile,
                            const StartRequest& request, const DockerSite& site) {
  return Planner(engine, profile, request, site).plan();
}

std::string launch_agent_text(const Engine& engine) {
  std::vector<std::string> quoted;
  for (const std::string& word : engine.command) quoted.push_back(shell_quote(word));
  return fmt::format(
      "#!/bin/sh\n"
      "# AGENT [options] HOST COMMAND...: runs the command in the container that is the host.\n"
      "while :; do case \"$1\" in -*) shift;; *) break;; esac; done\n"
      "host=$1; shift\n"
      "exec {} exec --interactive \"$host\" sh -c \"$*\"\n",
      join(quoted, " "));
}

std::string free_subnet_prefix(const std::string& name, const std::vector<unsigned>& routes,
                               int skip) {
  constexpr unsigned kBase = (172U << 24) | (30U << 16);
  constexpr unsigned kSubnets = 256;
  const auto start = static_cast<unsigned>(std::stoul(stable_id(name).substr(0, 6), nullptr, 16));
  for (unsigned step = 0; step < kSubnets; ++step) {
    const unsigned third = (start + step) % kSubnets;
    const unsigned subnet = kBase | (third << 8);
    const bool used = std::any_of(routes.begin(), routes.end(), [&](unsigned destination) {
      return (destination & 0xffffff00U) == subnet;
    });
    if (!used && skip-- == 0) return fmt::format("172.30.{}", third);
  }
  throw Error(ErrorKind::environment,
              "every network in 172.30.0.0/16 is in use: dynamiccl clean removes left-over ones");
}

}  // namespace dynamiccl
