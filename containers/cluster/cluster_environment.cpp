#include "containers/cluster/cluster_environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "containers/apptainer.hpp"
#include "containers/cluster/node_containers.hpp"
#include "containers/cluster/node_links.hpp"
#include "containers/image.hpp"
#include "containers/local_ranks.hpp"
#include "containers/owner.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "embedded/end_marked_ranks_sh.hpp"

namespace dynamiccl {
namespace {

/// Before an allocation is there, Slurm's variables and options cannot name it.
constexpr const char* kUnknownJob = "JOB";

std::vector<std::string> prefix_on_nodes(const EnvironmentProfile& profile,
                                         const StartRequest& request, const std::string& name) {
  if (profile.kind != EnvironmentKind::singularity) return {};
  // The nodes' images and programs lie where this machine's do; the environment's folder is this
  // machine's alone.
  ApptainerSite site = apptainer_site(name);
  site.run_folder.clear();
  StartRequest seen = request;
  // A folder that the nodes do not see cannot be bound there.
  if (request.cluster->records_over_tcp()) seen.binds.clear();
  return apptainer_exec_argv(profile, seen, site);
}

/// A step's options that say where its ranks go.
std::vector<std::string> step_argv(const ClusterOptions& options,
                                   const std::vector<ClusterNode>& placed, const std::string& job,
                                   const std::string& name) {
  int ranks = 0;
  bool even = true;
  std::vector<std::string> names;
  std::vector<std::string> of_ranks;
  for (const auto& node : placed) {
    ranks += node.slots;
    even = even && node.slots == placed.front().slots;
    names.push_back(node.name);
    of_ranks.insert(of_ranks.end(), static_cast<std::size_t>(node.slots), node.name);
  }
  std::vector<std::string> argv{"srun", "--jobid=" + job, "--overlap",
                                fmt::format("--nodes={}", placed.size()),
                                fmt::format("--ntasks={}", ranks)};
  // Slurm's block distribution fills a node before the next; equal shares are said as such, others
  // rank by rank.
  if (even) argv.push_back(fmt::format("--ntasks-per-node={}", placed.front().slots));
  argv.push_back(even ? "--distribution=block" : "--distribution=arbitrary");
  argv.push_back("--nodelist=" + join(even ? names : of_ranks, ","));
  argv.insert(argv.end(), {"--job-name=" + name, "--export=ALL", "--input=none",
                           "--kill-on-bad-exit=1", "--cpu-bind=none"});
  // Hidden GPUs would cost NVLink without a word; each rank picks its own by its number instead.
  if (options.gpus_per_node > 0) argv.emplace_back("--gpu-bind=none");
  return argv;
}

/// One command that reaches all nodes at once: a node that does not answer delays no other.
std::vector<std::string> kill_everywhere(const ClusterSession& session,
                                         const std::vector<ClusterNode>& placed,
                                         const std::string& name) {
  std::string script;
  for (const auto& node : placed)
    script +=
        command_line(session.node_argv(
            node.name, {"/bin/sh", "-c", std::string(embedded::end_marked_ranks_sh), "sh", name})) +
        " & ";
  return {"timeout", "60", "/bin/sh", "-c", script + "wait"};
}

/// Ranks on the nodes: bare or each in Apptainer, and nothing runs there between launches, or in
/// containers of the nodes' engines.
class ClusterEnvironment : public Environment {
 public:
  ClusterEnvironment(const EnvironmentProfile& profile, const StartRequest& request)
      : Environment(request),
        session_(request.cluster),
        placed_(place_ranks(session_->nodes(), request.ranks, session_->options().ranks_per_node)) {
    use_plan(plan_cluster(profile, request, name()));
    if (profile.kind == EnvironmentKind::singularity) image_ = apptainer_image_facts();
    if (session_->options().slurm()) slurm_ = slurm_facts(session_->job());
    if (!profile.in_engine()) return;
    try {
      containers_ = std::make_unique<NodeContainers>(session_, plan(), request.progress);
    } catch (...) {
      remove_folder();
      throw;
    }
  }
  ~ClusterEnvironment() override { end_marked_processes(name()); }

  nlohmann::json provenance() const override {
    const auto& prefix = shape().rank_prefix;
    nlohmann::json cluster = {{"start", name_of(session_->options().start)},
                              {"placement", placement_text(placed_)},
                              {"binding", "none"}};
    for (const auto& node : placed_)
      cluster["nodes"].push_back(
          {{"name", node.name}, {"ranks", node.slots}, {"links", links_of(node.name)}});
    if (!slurm_.empty()) {
      cluster["slurm"] = slurm_;
      cluster["jobs"] = name_of(session_->options().jobs);
    }
    nlohmann::json facts = {{"engine", prefix.empty() ? "none" : "apptainer"},
                            {"cluster", cluster}};
    if (!prefix.empty()) {
      facts["exec_argv"] = command_line(prefix);
      facts.update(image_);
    }
    if (containers_) facts.update(containers_->provenance());
    return facts;
  }

  std::vector<nlohmann::json> host_facts() const override {
    std::vector<nlohmann::json> facts;
    for (const auto& report : session_->reports())
      if (!report.facts.is_null()) facts.push_back(report.facts);
    return facts;
  }

  void stop() override {
    end_marked_processes(name());
    const std::string left = containers_ ? containers_->stop() : "";
    remove_folder();
    if (!left.empty()) throw Error(ErrorKind::environment, left);
  }

 private:
  [[nodiscard]] nlohmann::json links_of(const std::string& node) const {
    for (const auto& report : session_->reports())
      if (report.name == node) return links_of_node(report.facts);
    return nullptr;
  }

  std::shared_ptr<ClusterSession> session_;
  std::vector<ClusterNode> placed_;
  nlohmann::json image_;
  std::map<std::string, std::string> slurm_;
  std::unique_ptr<NodeContainers> containers_;  ///< nullptr: ranks are in none of an engine
};

/// A remote shell; "" = ssh.
bool can_be_started(const std::string& shell) {
  if (shell.starts_with("/")) return access(shell.c_str(), X_OK) == 0;
  return !find_program(shell.empty() ? "ssh" : shell).empty();
}

}  // namespace

std::optional<std::string> cluster_unavailable_reason(const EnvironmentProfile& profile,
                                                      const ClusterSession& session) {
  const ClusterOptions& options = session.options();
  // Planned alone, whatever this machine has.
  if (profile.in_engine() && options.engine.front() == "pyxis")
    return node_containers_reason(profile, options);
  if (options.slurm()) {
    if (auto reason = slurm_unavailable_reason())
      return fmt::format("{}. With it the nodes would be asked for by: {}", *reason,
                         command_line(allocation_argv(options, session.nodes().front().slots,
                                                      {"RUN", "HOST", "OWNER"})));
  } else if (const std::string& shell = options.remote_shell; !can_be_started(shell)) {
    auto argv = remote_prefix(options, options.hosts.front().name);
    argv.emplace_back("env NAME=VALUE WORKER run.json");
    return (shell.empty() ? std::string("ssh is not in PATH: apt-get install openssh-client")
                          : shell + " (cluster.remote_shell) is no program that can be started") +
           ". With it ranks would start by: " + command_line(argv);
  }
  if (profile.in_engine())
    if (auto reason = node_containers_reason(profile, options)) return reason;
  if (profile.kind == EnvironmentKind::singularity &&
      (profile.launcher == LauncherPlace::inside || profile.ranks_per_container != 1))
    return "one Apptainer container does not reach over nodes: use launcher = \"outside\" and "
           "ranks_per_container = 1 (profile singularity)";
  if (!profile.shared_tmpfs.empty())
    return "shared_tmpfs is made on this machine, not on nodes: there the job makes it, a folder "
           "in each node's /dev/shm (docs/one-host.md)";
  if (profile.in_engine() && options.dealt)
    return "cluster.dealt numbers ranks on bare metal or in Apptainer, not containers on nodes";
  if (profile.link_bits_per_s)
    return "link_bits_per_s caps links of containers, not those of nodes";
  return std::nullopt;
}

LaunchShape cluster_shape(const ClusterOptions& options, const std::vector<ClusterNode>& placed,
                          const std::string& job, const std::string& name,
                          const std::vector<std::string>& rank_prefix) {
  LaunchShape shape;
  for (const auto& node : placed) shape.hosts.push_back({node.name, "", node.slots});
  shape.rank_prefix = rank_prefix;
  shape.dealt = options.dealt;
  shape.interface = options.interface;
  shape.launcher_environment = rank_marks(name, owner_token());
  if (!options.slurm()) {
    shape.launch_agent = options.remote_shell.empty() ? "ssh" : options.remote_shell;
    return shape;
  }
  shape.step_prefix = step_argv(options, placed, job, name);
  if (options.start != ClusterStart::mpirun) return shape;
  shape.slurm_daemons = true;
  shape.launcher_environment.merge(allocation_variables(job, placed));
  return shape;
}

EnvironmentPlan plan_cluster(const EnvironmentProfile& profile, const StartRequest& request,
                             const std::string& name) {
  const ClusterSession& session = *request.cluster;
  const ClusterOptions& options = session.options();
  const auto nodes = session.nodes();
  const auto placed = place_ranks(nodes, request.ranks, options.ranks_per_node);
  EnvironmentPlan plan;
  plan.name = name;
  plan.folder = RunFolder::path_of(name);
  if (options.slurm() && session.job().empty()) {
    const SlurmMark mark{request.run_id, "HOST", "OWNER"};
    const int slots = nodes.front().slots;
    plan.allocate =
        options.job_per_launch()
            ? submission_argv(options, slots, mark, options.jobs_ahead, "JOB-BEFORE", "SECONDS")
            : allocation_argv(options, slots, mark);
  }
  plan.shape = cluster_shape(options, placed, session.job().empty() ? kUnknownJob : session.job(),
                             name, prefix_on_nodes(profile, request, name));
  if (profile.kind == EnvironmentKind::singularity) plan.mounts = planned_mounts({}, "", request);
  plan.kill_command = kill_everywhere(session, placed, name);
  plan.kill_timeout = std::chrono::seconds(60);
  for (const auto& node : options.dealt ? dealt_in_turn(placed) : placed)
    plan.starts.push_back({node.slots, remote_prefix(options, node.name), "", rank_marks(name, ""),
                           plan.shape.rank_prefix, true});
  if (profile.in_engine()) plan_node_containers(profile, request, placed, plan);
  return plan;
}

std::unique_ptr<Environment> start_on_cluster(const EnvironmentProfile& profile,
                                              const StartRequest& request) {
  return std::make_unique<ClusterEnvironment>(profile, request);
}

}  // namespace dynamiccl
