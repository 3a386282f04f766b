#include "containers/docker.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "containers/command.hpp"
#include "containers/docker_plan.hpp"
#include "containers/engine_choice.hpp"
#include "containers/host_root.hpp"
#include "containers/image.hpp"
#include "containers/link_rate.hpp"
#include "containers/owner.hpp"
#include "containers/paths.hpp"
#include "containers/private_engine.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Destinations of the host's IPv4 routes, host byte order.
std::vector<unsigned> host_routes() {
  std::vector<unsigned> routes;
  std::ifstream file("/proc/net/route");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string interface;
    std::string destination;
    fields >> interface >> destination;
    // The file shows network byte order as the machine's own integers.
    routes.push_back(
        __builtin_bswap32(static_cast<unsigned>(std::strtoul(destination.c_str(), nullptr, 16))));
  }
  return routes;
}

DockerSite site_for(const Engine& engine, const std::string& name) {
  DockerSite site;
  site.name = name;
  site.run_folder = RunFolder::path_of(name);
  site.owner = owner_token();
  site.image = engine_image_name();
  site.subnet_prefix = free_subnet_prefix(name, host_routes(), 0);
  if (!is_root()) site.user = fmt::format("{}:{}", geteuid(), getegid());
  site.gpus = find_gpus();
  site.gpu_passing = find_gpu_passing(engine);
  if (host_root_wanted()) {
    site.gpu_passing = GpuPassing::devices;
    site.host_folders = host_root_binds();
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) site.library_path = path;
  }
  return site;
}

/// @param interrupted asked while an engine that is being started (by systemd, when it was first
/// spoken to) is waited for
Engine engine_or_throw(bool (*interrupted)()) {
  EngineSearch search = find_engine();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (search.silent && std::chrono::steady_clock::now() < deadline &&
         (interrupted == nullptr || !interrupted())) {
    usleep(200000);
    search = find_engine();
  }
  if (!search.engine) throw Error(ErrorKind::environment, search.reason);
  return *search.engine;
}

Engine running_engine(bool (*interrupted)() = nullptr) {
  Engine engine = engine_or_throw(interrupted);
  if (engine.is_private) hold_private_engine(interrupted);
  return engine;
}

std::vector<std::string> ids_of(const Engine& engine, const std::vector<std::string>& listing) {
  std::vector<std::string> ids;
  const CommandResult result = run_command(engine_argv(engine, listing));
  for (const std::string& line : split(result.out, '\n'))
    if (!trim(line).empty()) ids.emplace_back(trim(line));
  return ids;
}

class DockerEnvironment : public Environment {
 public:
  DockerEnvironment(Engine engine, EnvironmentProfile profile, const StartRequest& request)
      : Environment(request), engine_(std::move(engine)), profile_(std::move(profile)) {
    version_ = engine_version(engine_);
    image_ = engine_image_facts(engine_, profile_.options.image);
    try {
      make_network(request);
      for (const PlannedContainer& container : plan().containers)
        ids_.push_back(start_container(container));
      limit_links();
    } catch (...) {
      remove_all();
      throw;
    }
  }
  ~DockerEnvironment() override { remove_all(); }

  nlohmann::json provenance() const override {
    nlohmann::json containers = nlohmann::json::array();
    for (std::size_t i = 0; i < plan().containers.size(); ++i)
      containers.push_back({{"name", plan().containers[i].name},
                            {"id", i < ids_.size() ? ids_[i] : ""},
                            {"address", plan().containers[i].address},
                            {"ranks", plan().containers[i].ranks},
                            {"argv", command_line(plan().containers[i].run_argv)}});
    nlohmann::json capabilities = nlohmann::json::object();
    for (const Capability& capability : profile_.capabilities)
      capabilities[capability.name] = capability.reason;
    nlohmann::json facts = {{"engine", engine_.name()},
                            {"engine_version", version_},
                            {"engine_private", engine_.is_private},
                            {"network", plan().network.name},
                            {"subnet", plan().shape.subnet},
                            {"link_bits_per_s", profile_.link_bits_per_s.value_or(0.0)},
                            {"capabilities", capabilities},
                            {"containers", containers}};
    facts.update(image_);
    return facts;
  }

  void stop() override {
    const std::string left = remove_all();
    if (!left.empty())
      throw Error(ErrorKind::environment,
                  fmt::format("profile {}: could not remove {}; repeat with: dynamiccl clean",
                              profile_.name, left));
  }

 private:
  /// Another run may take the same free network first: then the next one is tried.
  void make_network(const StartRequest& request) {
    constexpr int kTries = 8;
    DockerSite site = site_for(engine_, name());
    for (int attempt = 0;; ++attempt) {
      site.subnet_prefix = free_subnet_prefix(name(), host_routes(), attempt);
      use_plan(plan_docker(engine_, profile_, request, site));
      if (plan().network.name.empty()) return;
      const CommandResult made = run_command(plan().network.create);
      if (made.exit_code == 0) return;
      // The name is this folder's alone: what has it is of an engine that died under an earlier
      // attempt of the run, and came back with the next one.
      if (made.err.find("already exists") != std::string::npos)
        run_command(engine_argv(engine_, {"network", "rm", plan().network.name}));
      if (attempt + 1 == kTries)
        throw Error(ErrorKind::environment,
                    fmt::format("profile {}: `{}` failed: {}", profile_.name,
                                command_line(plan().network.create), trim(made.err)));
    }
  }

  [[nodiscard]] std::string start_container(const PlannedContainer& container) const {
    const CommandResult started = run_command(container.run_argv);
    if (started.exit_code == 0) return std::string(trim(started.out));
    if (started.err.find("already in use") != std::string::npos)
      run_command(engine_argv(engine_, {"rm", "--force", "--volumes", container.name}));
    return checked_output(
        fmt::format("profile {}: cannot start container {}", profile_.name, container.name),
        container.run_argv);
  }

  void limit_links() const {
    if (!profile_.link_bits_per_s) return;
    for (const PlannedContainer& container : plan().containers)
      limit_link(engine_, container.name, *profile_.link_bits_per_s);
  }

  [[nodiscard]] std::vector<std::string> containers_left() const {
    std::vector<std::string> left;
    for (const PlannedContainer& container : plan().containers)
      if (!ids_of(engine_,
                  {"ps", "--all", "--quiet", "--filter", "name=^/?" + container.name + "$"})
               .empty())
        left.push_back(container.name);
    return left;
  }

  /// Twice: Podman removes a container only after those that have joined its namespaces.
  void remove_containers() const {
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto left = containers_left();
      if (left.empty()) return;
      auto remove = engine_argv(engine_, {"rm", "--force", "--volumes"});
      remove.insert(remove.end(), left.rbegin(), left.rend());
      run_command(remove);
    }
  }

  /// @returns what is left, "" when all is gone
  std::string remove_all() {
    if (stopped_) return "";
    std::vector<std::string> left;
    try {
      remove_containers();
      for (const std::string& name : containers_left()) left.push_back("container " + name);
      if (!plan().network.name.empty()) {
        run_command(engine_argv(engine_, {"network", "rm", plan().network.name}));
        if (!ids_of(engine_,
                    {"network", "ls", "--quiet", "--filter", "name=^" + plan().network.name + "$"})
                 .empty())
          left.push_back("network " + plan().network.name);
      }
    } catch (const Error& error) {
      left.emplace_back(error.what());
    }
    remove_folder();
    stopped_ = left.empty();
    return join(left, ", ");
  }

  Engine engine_;
  EnvironmentProfile profile_;
  std::vector<std::string> ids_;
  std::string version_;
  nlohmann::json image_;
  bool stopped_ = false;
};

/// `listing` starts with the kind of thing ("container", "network"); `labels` is where a template
/// finds its labels.
void remove_dead(const Engine& engine, const std::vector<std::string>& listing,
                 const std::string& labels, const std::vector<std::string>& remove,
                 std::vector<std::string>& removed) {
  const std::string format =
      fmt::format("{{{{index {} \"dynamiccl.owner\"}}}} {{{{.Name}}}}", labels);
  for (const std::string& id : ids_of(engine, listing)) {
    const CommandResult owner =
        run_command(engine_argv(engine, {listing.front(), "inspect", "--format", format, id}));
    const auto parts = split(std::string(trim(owner.out)), ' ');
    if (owner.exit_code != 0 || owner_alive(parts.front())) continue;
    auto argv = engine_argv(engine, remove);
    argv.push_back(id);
    if (run_command(argv).exit_code == 0) removed.push_back(listing.front() + " " + parts.back());
  }
}

}  // namespace

std::optional<std::string> docker_unavailable_reason(const EnvironmentProfile& profile) {
  const EngineSearch search = find_engine();
  // A silent engine is found out when the environment is prepared: that fails the run's cells.
  if (search.silent) return std::nullopt;
  if (!search.engine) return search.reason;
  if (profile.uts == Sharing::shared && search.engine->kind == EngineKind::docker &&
      profile.ranks_per_container > 0)
    return "Docker cannot share one UTS namespace among containers (only with the host): use "
           "uts = \"host\", or Podman";
  if (profile.user != Sharing::host)
    return "containers with user namespaces of their own are not started: use user = \"host\"";
  if (!profile.link_bits_per_s) return std::nullopt;
  if (!is_root()) return "link_bits_per_s needs root (tc on the host's side of each link)";
  if (profile.network == Sharing::host)
    return "link_bits_per_s needs a network of the containers' own: use network = \"private\"";
  if (find_program("tc").empty())
    return "link_bits_per_s needs tc: apt-get install -y --no-install-recommends iproute2";
  return std::nullopt;
}

void prepare_docker(const Progress& progress) {
  import_image(running_engine(progress.interrupted), progress);
}

std::unique_ptr<Environment> start_docker_in(const Engine& engine,
                                             const EnvironmentProfile& profile,
                                             const StartRequest& request) {
  return std::make_unique<DockerEnvironment>(engine, profile, request);
}

std::unique_ptr<Environment> start_docker(const EnvironmentProfile& profile,
                                          const StartRequest& request) {
  return start_docker_in(running_engine(), profile, request);
}

EnvironmentPlan docker_plan_here(const EnvironmentProfile& profile, const StartRequest& request,
                                 const std::string& name) {
  // A plan is shown also where no engine is installed yet.
  const Engine engine =
      find_engine().engine.value_or(Engine{EngineKind::docker, {"docker"}, "", {}, false});
  return plan_docker(engine, profile, request, site_for(engine, name));
}

std::vector<std::string> clean_engine(const Engine& engine) {
  const std::string ours = "label=dynamiccl.owner";
  std::vector<std::string> removed;
  // Twice: Podman removes a container only after those that have joined its namespaces.
  for (int attempt = 0; attempt < 2; ++attempt)
    remove_dead(engine, {"container", "ps", "--all", "--quiet", "--filter", ours}, ".Config.Labels",
                {"rm", "--force", "--volumes"}, removed);
  remove_dead(engine, {"network", "ls", "--quiet", "--filter", ours}, ".Labels", {"network", "rm"},
              removed);
  return removed;
}

}  // namespace dynamiccl
