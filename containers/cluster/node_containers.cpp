#include "containers/cluster/node_containers.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>

#include "containers/cluster/slurm.hpp"
#include "containers/docker_plan.hpp"
#include "containers/engine_choice.hpp"
#include "containers/host_root.hpp"
#include "containers/image.hpp"
#include "containers/local_ranks.hpp"
#include "containers/owner.hpp"
#include "containers/paths.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/record_frames.hpp"
#include "embedded/end_container_ranks_sh.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kStarted = "container-is-up";
constexpr const char* kHandOnVariable = "DYNAMICCL_HAND_ON";
/// Label that names the program which holds a container from another machine.
constexpr const char* kHolderMark = "dynamiccl.holder";
/// In the tag of an image of which not all has arrived, before the program that sends it.
constexpr const char* kArriving = "-arriving-";
/// Connections to one node that have not logged in yet: sshd refuses some beyond ten.
constexpr int kLoginsAtOnce = 4;
constexpr std::chrono::seconds kStartsWithin{60};
/// Containers end as soon as their connection does; longer is a node that is gone.
constexpr std::chrono::seconds kEndsWithin{15};

/// A name that engines take.
std::string plain_name(const std::string& host) {
  std::string plain = host;
  for (char& c : plain)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  return plain;
}

/// Where it is killed meanwhile, this is what it leaves: ":ID-arriving-OWNER-HOST".
std::string arriving_name(const std::string& image) {
  constexpr std::size_t kMostOfHost = 40;  // A tag has 128 letters at most.
  const SlurmMark mark = own_mark("");
  return image + kArriving + mark.owner + "-" + plain_name(mark.host).substr(0, kMostOfHost);
}

/// Of a program of this machine that is over: another machine's process ids say nothing here.
bool arrives_no_more(const std::string& image) {
  const auto at = image.find(kArriving);
  if (at == std::string::npos) return false;
  const std::string whole = image.substr(0, at);
  const std::string sender = image.substr(at + std::strlen(kArriving));
  const std::string owner = sender.substr(0, sender.find('-'));
  const std::string here = arriving_name(whole);
  return here.substr(here.find('-', at + std::strlen(kArriving))) == sender.substr(owner.size()) &&
         !owner_alive(owner);
}

std::string agent_path(const EnvironmentPlan& plan) { return plan.folder + "/launch-agent"; }

/// What a container does while it stays: it reads its input, which ends with the connection. Its
/// last two words are those by which a holder is spared when ranks are ended.
std::vector<std::string> holder(const EnvironmentPlan& plan) {
  // Open MPI's daemons look for the agent under the same path, and start nothing by it.
  return {"sh", "-c",
          fmt::format("ln -s /bin/true {}; echo {}; while read -r line; do :; done",
                      agent_path(plan), kStarted),
          "sleep", "infinity"};
}

DockerSite site_on(const ClusterNode& node, const ClusterOptions& options,
                   const EnvironmentPlan& plan, const std::string& run_id) {
  DockerSite site;
  site.name = plan.name + "-" + plain_name(node.name);
  site.image = engine_image_name();
  site.held = holder(plan);
  site.run_flags = {"--label", fmt::format("{}={}", kHolderMark, mark_text(own_mark(run_id))),
                    "--pull",  "never",
                    "--tmpfs", plan.folder + ":exec,mode=1777"};
  for (int gpu = 0; gpu < options.gpus_per_node; ++gpu) site.gpus.push_back({gpu});
  site.gpu_passing = GpuPassing::toolkit;
  if (!is_root()) site.user = fmt::format("{}:{}", geteuid(), getegid());
  if (host_root_wanted()) {
    site.host_folders = host_root_binds();
    if (const char* path = std::getenv("LD_LIBRARY_PATH")) site.library_path = path;
  }
  return site;
}

/// A rank of a job step goes into the container of its node and number, and takes along what Slurm
/// and its launcher have set for it.
std::vector<std::string> step_prefix(const EnvironmentPlan& plan, const Engine& engine,
                                     int ranks_per_container) {
  const std::string number =
      ranks_per_container > 0 ? fmt::format("$((SLURM_LOCALID / {}))", ranks_per_container) : "0";
  return {
      "sh", "-c",
      fmt::format("set -- {}-\"$SLURMD_NODENAME\"-{} \"$@\"; "
                  "for name in $(env | sed -nE 's/^((SLURM|PMIX|OMPI)_[A-Za-z0-9_]*)=.*/\\1/p') "
                  "${}; do set -- --env \"$name\" \"$@\"; done; exec {} exec \"$@\"",
                  plan.name, number, kHandOnVariable, command_line(engine.command)),
      "sh"};
}

/// AGENT [options] HOST COMMAND...: runs the command in the container that is the host.
std::string agent_text(const ClusterSession& session, const EnvironmentPlan& plan,
                       const Engine& engine) {
  std::string text =
      "#!/bin/sh\n"
      "# AGENT [options] HOST COMMAND...: runs the command in the container that is the host.\n"
      "while :; do case \"$1\" in -*) shift;; *) break;; esac; done\n"
      "host=$1; shift\n"
      "case $host in\n";
  const bool slurm = session.options().slurm();
  for (const HostSlot& host : plan.shape.hosts) {
    auto inner = engine_argv(engine, {"exec", "--interactive", host.name, "sh", "-c"});
    if (slurm) {
      text += fmt::format("{}) exec {} \"$*\";;\n", host.name,
                          command_line(session.node_argv(host.node, inner)));
      continue;
    }
    // One word more for the shell of the node.
    text += fmt::format("{}) exec {} \"{} '$(printf %s \"$*\" | sed \"s/'/'\\\\\\\\''/g\")'\";;\n",
                        host.name, command_line(remote_prefix(session.options(), host.node)),
                        command_line(inner));
  }
  return text + "esac\necho \"$host: no container of this launch\" >&2\nexit 255\n";
}

/// One command that reaches all nodes at once: a node that does not answer delays no other.
std::vector<std::string> kill_everywhere(const ClusterSession& session, const Engine& engine,
                                         const EnvironmentPlan& plan) {
  std::string script;
  for (const HostSlot& host : plan.shape.hosts)
    script +=
        command_line(session.node_argv(
            host.node, engine_argv(engine, {"exec", host.name, "/bin/sh", "-c",
                                            std::string(embedded::end_container_ranks_sh)}))) +
        " & ";
  return {"timeout", "20", "/bin/sh", "-c", script + "wait"};
}

/// What a cluster with pyxis would be given.
std::string pyxis_line(const EnvironmentProfile& profile, const ClusterOptions& options) {
  std::vector<std::string> apart;
  if (profile.network != Sharing::host) apart.emplace_back("net");
  if (profile.ipc != Sharing::host) apart.emplace_back("ipc");
  if (profile.uts != Sharing::host) apart.emplace_back("uts");
  return fmt::format(
      "srun --nodes={} --container-image=dynamiccl-worker --container-mounts=FOLDER:FOLDER "
      "{}WORKER "
      "run.json",
      std::max(1, options.nodes),
      apart.empty() ? "" : "--container-unshare=" + join(apart, ",") + " ");
}

/// The lines by which engines of several hosts make a network of their own.
std::string overlay_line(const ClusterOptions& options) {
  const std::string engine = command_line(options.engine);
  return fmt::format(
      "{} swarm init on one node and {} swarm join on the others, {} network create --driver "
      "overlay --attachable OVERLAY, {} run --rm --network=OVERLAY --volume=FOLDER:FOLDER "
      "dynamiccl-worker WORKER run.json",
      engine, engine, engine, engine);
}

bool needs_interface(const EnvironmentProfile& profile) {
  for (const auto& [backend, settings] : profile.backend_settings)
    for (const auto& setting : settings)
      if (setting.value.find("{interface}") != std::string::npos) return true;
  return false;
}

CommandOptions followed(const Progress& progress) {
  CommandOptions options;
  options.interrupted = progress.interrupted;
  return options;
}

void throw_if_interrupted(const Progress& progress) {
  if (progress.interrupted != nullptr && progress.interrupted())
    throw Error(ErrorKind::environment, "interrupted while containers start on nodes");
}

}  // namespace

std::optional<std::string> node_containers_reason(const EnvironmentProfile& profile,
                                                  const ClusterOptions& options) {
  if (options.engine.front() == "pyxis") {
    if (!options.slurm()) return "pyxis is a plugin of Slurm: use slurm = true";
    return "containers by Slurm's pyxis are planned, not started. It would be: " +
           pyxis_line(profile, options);
  }
  if (profile.network != Sharing::host)
    return fmt::format(
        "containers on the nodes of a cluster have their nodes' network: use network = \"host\" "
        "(profile cross-docker-host-network). Networks of their own would need an overlay "
        "between the engines: {}",
        overlay_line(options));
  if (profile.launcher == LauncherPlace::inside)
    return "on nodes the launcher is outside the containers: use kind = \"cross-docker\" with "
           "launcher = \"outside\", and ranks_per_container = N for N ranks of a node in one "
           "container";
  if (profile.user != Sharing::host)
    return "containers with user namespaces of their own are not started: use user = \"host\"";
  if (options.gpus_per_node > 0 && profile.gpus != GpuVisibility::none &&
      named_engine(options.engine).kind == EngineKind::podman)
    return "Podman on nodes is given no GPUs (cluster.gpus_per_node): whether a node has a "
           "specification of the container device interface is not asked there. Use Docker with "
           "NVIDIA's container toolkit, or gpus = \"none\"";
  if (options.interface.empty() && needs_interface(profile))
    return fmt::format(
        "profile {} puts ranks on {{interface}}: say which one the nodes' network is, "
        "cluster.interface = \"eth0\"",
        profile.name);
  return std::nullopt;
}

void plan_node_containers(const EnvironmentProfile& profile, const StartRequest& request,
                          const std::vector<ClusterNode>& placed, EnvironmentPlan& plan) {
  const ClusterSession& session = *request.cluster;
  const ClusterOptions& options = session.options();
  const Engine engine = named_engine(options.engine);
  auto& shape = plan.shape;
  shape.hosts.clear();
  plan.starts.clear();
  for (const ClusterNode& node : placed) {
    StartRequest here = request;
    here.ranks = node.slots;
    // A folder that the nodes do not see cannot be bound there.
    if (session.records_over_tcp()) here.binds.clear();
    const EnvironmentPlan on_node =
        plan_docker(engine, profile, here, site_on(node, options, plan, request.run_id));
    plan.mounts = on_node.mounts;
    for (PlannedContainer container : on_node.containers) {
      container.run_argv = session.node_argv(node.name, container.run_argv, true);
      shape.hosts.push_back({container.name, "", container.ranks, node.name});
      auto inner = engine_argv(engine, {"exec", "--env", kRecordsToken});
      plan.starts.push_back({container.ranks,
                             remote_prefix(options, node.name),
                             "--env",
                             rank_marks(plan.name, ""),
                             {container.name},
                             true,
                             std::move(inner)});
      plan.containers.push_back(std::move(container));
    }
  }
  shape.launch_agent = agent_path(plan);
  plan.scripts = {{"launch-agent", agent_text(session, plan, engine)}};
  plan.kill_command = kill_everywhere(session, engine, plan);
  if (!options.slurm()) return;
  shape.names_variable = kHandOnVariable;
  // PMIx keeps its own data in memory that ranks and Slurm share, unless a setting says not to.
  shape.step_environment["PMIX_MCA_gds"] = "hash";
  // By Slurm's PMIx the ranks of a node are neighbours, and Open MPI takes for granted that such
  // share memory: containers that do not have crashed it.
  if (profile.ipc == Sharing::private_ && shape.hosts.size() > placed.size())
    shape.step_environment["OMPI_MCA_btl"] = "tcp,self";
  shape.step_rank_prefix = step_prefix(plan, engine, profile.ranks_per_container);
}

NodeContainers::NodeContainers(std::shared_ptr<ClusterSession> session, const EnvironmentPlan& plan,
                               const Progress& progress)
    : session_(std::move(session)), plan_(plan) {
  bring_image(progress);
  remove_abandoned(progress);
  start_all(progress);
}

NodeContainers::~NodeContainers() { stop(); }

std::vector<ClusterNode> NodeContainers::nodes() const {
  std::vector<ClusterNode> found;
  for (const HostSlot& host : plan_.shape.hosts)
    if (found.empty() || found.back().name != host.node) found.push_back({host.node, 1});
  return found;
}

void NodeContainers::bring_image(const Progress& progress) {
  const Engine engine = named_engine(session_->options().engine);
  const bool podman = engine.kind == EngineKind::podman;
  const std::string words = command_line(engine.command);
  const std::string image = engine_image_name();
  const std::vector<std::string> ask{
      "sh", "-c",
      fmt::format("{} version --format '{{{{.{}.Version}}}}' && {{ {} image inspect --format "
                  "'{{{{.Id}}}}' {} 2>/dev/null || echo none; }}",
                  words, podman ? "Client" : "Server", words, shell_quote(image))};
  std::vector<ClusterNode> lacking;
  const auto all = nodes();
  for (int turn = 0; turn < 2; ++turn) {
    const auto answers = session_->on_nodes(all, ask, followed(progress));
    throw_if_interrupted(progress);
    lacking.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto lines = split(std::string(trim(answers[i].out)), '\n');
      if (answers[i].exit_code != 0 || lines.size() < 2)
        throw Error(ErrorKind::environment,
                    fmt::format("{} has no {} that answers (cluster.engine): {}", all[i].name,
                                words, trim(answers[i].err)));
      // An inspection that fails may have printed an empty line.
      if (lines.back() == "none") lacking.push_back(all[i]);
      engines_[all[i].name] = {{"version", engine.name() + " " + lines[lines.size() - 2]},
                               {"image_id", lines.back()}};
    }
    if (lacking.empty()) return;
    if (turn == 1) break;
    import_image_on(lacking, engine, progress);
  }
  throw Error(ErrorKind::environment,
              fmt::format("{} has not kept image {}", lacking.front().name, image));
}

// A connection that is cut in the middle looks to the engine like the archive's end, and of a tar
// that ends between two files it makes an image. So that no later run takes such a one for the
// worker's, it gets its name when this program knows that all of it has arrived.
void NodeContainers::import_image_on(const std::vector<ClusterNode>& lacking, const Engine& engine,
                                     const Progress& progress) {
  const std::string words = command_line(engine.command);
  const std::string image = engine_image_name();
  const std::string arriving = arriving_name(image);
  const ImageArchive archive =
      prepare_image_archive(words + " on " + lacking.front().name, progress);
  if (progress.say != nullptr)
    progress.say(fmt::format("importing the worker image on {} nodes (once)", lacking.size()));
  const auto on_all = [&](const std::vector<std::string>& argv, CommandOptions options) {
    options.timeout = std::chrono::minutes(10);
    const auto results = session_->on_nodes(lacking, argv, options);
    throw_if_interrupted(progress);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (results[i].exit_code != 0)
        throw Error(ErrorKind::environment, fmt::format("{}: cannot import the worker image: {}",
                                                        lacking[i].name, trim(results[i].err)));
  };
  std::vector<std::string> argv = engine_argv(engine, {"import"});
  argv.insert(argv.end(), archive.flags.begin(), archive.flags.end());
  argv.insert(argv.end(), {"-", arriving});
  CommandOptions with_archive = followed(progress);
  with_archive.input_file = archive.file;
  try {
    on_all(argv, with_archive);
    on_all({"sh", "-c",
            fmt::format("{0} tag {1} {2} && {0} rmi {1} >/dev/null", words, shell_quote(arriving),
                        shell_quote(image))},
           followed(progress));
  } catch (const Error&) {
    CommandOptions soon;
    soon.timeout = std::chrono::seconds(10);
    // As far as they can still be asked.
    static_cast<void>(session_->on_nodes(lacking, engine_argv(engine, {"rmi", arriving}), soon));
    throw;
  }
}

void NodeContainers::remove_abandoned(const Progress& progress) {
  const std::string words = command_line(named_engine(session_->options().engine).command);
  const auto all = nodes();
  // Containers are lines of two words or more, images of one.
  const auto asked = session_->on_nodes(
      all,
      {"sh", "-c",
       fmt::format("{0} images --format '{{{{.Repository}}}}:{{{{.Tag}}}}' | grep -e {2}; "
                   "ids=$({0} ps --all --quiet --filter label={1}) || exit 3; [ -z \"$ids\" ] || "
                   "{0} inspect --format '{{{{.Id}}}} {{{{index .Config.Labels \"{1}\"}}}}' $ids",
                   words, kHolderMark, kArriving)},
      followed(progress));
  const std::string here = own_mark("").host;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::string> dead;
    std::vector<std::string> cut;
    for (const std::string& line : split(asked[i].out, '\n')) {
      const auto space = line.find(' ');
      if (space == std::string::npos) {
        if (arrives_no_more(line)) cut.push_back(line);
        continue;
      }
      // Another machine's process ids say nothing here.
      const auto mark = parse_mark(line.substr(space + 1));
      if (mark && mark->host == here && !owner_alive(mark->owner))
        dead.push_back(line.substr(0, space));
    }
    remove_on(all[i], "rm --force --volumes", dead, "containers of runs that are over", progress);
    remove_on(all[i], "rmi --force", cut, "images that runs which are over were sending", progress);
  }
}

void NodeContainers::remove_on(const ClusterNode& node, const std::string& verb,
                               const std::vector<std::string>& names, const std::string& what,
                               const Progress& progress) {
  if (names.empty()) return;
  const std::string words = command_line(named_engine(session_->options().engine).command);
  const auto removed = session_->on_nodes(
      {node}, {"sh", "-c", fmt::format("{} {} {}", words, verb, join(names, " "))},
      followed(progress));
  if (progress.say != nullptr)
    progress.say(fmt::format("{}: {} {} {}", node.name, names.size(), what,
                             removed[0].exit_code == 0 ? "removed" : "cannot be removed"));
}

void NodeContainers::start_all(const Progress& progress) {
  // Of every node the first few, then the next: as many waves as the fullest node needs.
  std::vector<std::vector<std::size_t>> waves;
  std::map<std::string, int> of_node;
  for (std::size_t i = 0; i < plan_.containers.size(); ++i) {
    const auto wave =
        static_cast<std::size_t>(of_node[plan_.shape.hosts[i].node]++ / kLoginsAtOnce);
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(i);
  }
  try {
    for (const auto& wave : waves) start_wave(wave, progress);
  } catch (...) {
    stop();
    throw;
  }
}

void NodeContainers::start_wave(const std::vector<std::size_t>& wave, const Progress& progress) {
  const auto errors = [&](std::size_t i) {
    return plan_.folder + "/" + plan_.containers[i].name + ".err";
  };
  const std::size_t first = held_.size();
  for (const std::size_t i : wave) held_.emplace_back(plan_.containers[i].run_argv, errors(i));
  for (std::size_t at = 0; at < wave.size(); ++at) {
    if (held_[first + at].read_line(kStarted, kStartsWithin, progress.interrupted)) continue;
    throw_if_interrupted(progress);
    const PlannedContainer& container = plan_.containers[wave[at]];
    throw Error(ErrorKind::environment,
                fmt::format("container {} has not started: `{}`: {}", container.name,
                            command_line(container.run_argv), trim(file_text(errors(wave[at])))));
  }
}

nlohmann::json NodeContainers::provenance() const {
  nlohmann::json containers = nlohmann::json::array();
  for (std::size_t i = 0; i < plan_.containers.size(); ++i)
    containers.push_back({{"name", plan_.containers[i].name},
                          {"node", plan_.shape.hosts[i].node},
                          {"ranks", plan_.containers[i].ranks},
                          {"argv", command_line(plan_.containers[i].run_argv)}});
  return {{"engine", named_engine(session_->options().engine).name()},
          {"engines", engines_},
          {"image", engine_image_name()},
          {"containers", containers}};
}

std::string NodeContainers::stop() {
  if (stopped_) return left_;
  stopped_ = true;
  HeldCommand::end_all(held_, kEndsWithin);
  held_.clear();
  // Those whose connection was cut without the engine's noticing.
  const std::string words = command_line(named_engine(session_->options().engine).command);
  const std::string list =
      fmt::format("{} ps --all --quiet --filter name=^/?{}-", words, plan_.name);
  const auto all = nodes();
  const auto answers =
      session_->on_nodes(all,
                         {"sh", "-c",
                          fmt::format("ids=$({}) || exit 3; [ -z \"$ids\" ] || {} rm --force "
                                      "--volumes $ids >/dev/null; {}",
                                      list, words, list)},
                         {});
  std::vector<std::string> left;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& node = all[i].name;
    const NodeResult& answer = answers[i];
    if (answer.timed_out || answer.exit_code != 0)
      left.push_back(fmt::format("could not look at {} for containers of {}: {}", node, plan_.name,
                                 answer.timed_out ? "it does not answer" : trim(answer.err)));
    else if (!trim(answer.out).empty())
      left.push_back(fmt::format("could not remove containers of {} on {}", plan_.name, node));
  }
  if (!left.empty())
    left_ = join(left, "; ") +
            ". What is left there ends with its connection, or is removed by the next run that "
            "this machine starts in containers there";
  return left_;
}

}  // namespace dynamiccl
