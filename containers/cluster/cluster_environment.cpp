#include "containers/cluster/cluster_environment.hpp"

#include <fmt/format.h>

#include "containers/apptainer.hpp"
#include "containers/local_ranks.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// RANK of a host, counted through the hosts in their order.
const HostSlot& host_of(const LaunchShape& shape, int rank) {
  int first = 0;
  for (const auto& host : shape.hosts) {
    if (rank < first + host.slots) return host;
    first += host.slots;
  }
  throw Error(ErrorKind::bug, fmt::format("rank {} of {} placed ranks", rank, first));
}

std::vector<std::string> rank_by_ssh(const LaunchShape& shape, const std::string& name, int rank,
                                   const std::vector<std::string>& command,
                                   const std::map<std::string, std::string>& env) {
  return ssh_argv(host_of(shape, rank).name,
                  marked_rank_argv(name, shape.rank_prefix, command, env));
}

/// The nodes' images and programs lie where this machine's do.
ApptainerSite site_on_nodes(const std::string& name) {
  ApptainerSite site = apptainer_site(name);
  site.run_folder.clear();
  return site;
}

std::vector<std::string> prefix_on_nodes(const EnvironmentProfile& profile,
                                     const StartRequest& request, const std::string& name) {
  if (profile.kind != EnvironmentKind::singularity) return {};
  return apptainer_exec_argv(profile, request, site_on_nodes(name));
}

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
  std::vector<std::string> argv{"srun"};
  if (!job.empty()) argv.insert(argv.end(), {"--jobid=" + job, "--overlap"});
  argv.insert(argv.end(),
              {fmt::format("--nodes={}", placed.size()), fmt::format("--ntasks={}", ranks)});
  // Slurm's block distribution fills a node before the next; equal shares are said as such, others
  // rank by rank.
  const bool named = options.start != ClusterStart::sbatch;
  if (even)
    argv.push_back(fmt::format("--ntasks-per-node={}", placed.front().slots));
  else if (named)
    argv.emplace_back("--distribution=arbitrary");
  if (named) argv.push_back("--nodelist=" + join(even ? names : of_ranks, ","));
  argv.insert(argv.end(), {"--job-name=" + name, "--export=ALL", "--input=none",
                           "--kill-on-bad-exit=1", "--cpu-bind=none"});
  // Hidden GPUs would cost NVLink without a word; each rank picks its own by its number instead.
  if (options.gpus_per_node > 0) argv.emplace_back("--gpu-bind=none");
  return argv;
}

std::vector<std::string> batch_argv(const ClusterOptions& options,
                                    const std::vector<ClusterNode>& placed) {
  std::vector<std::string> argv{
      "sbatch", "--parsable", fmt::format("--nodes={}", placed.size()),
      fmt::format("--ntasks-per-node={}", placed.front().slots), "--no-requeue"};
  if (!options.partition.empty()) argv.push_back("--partition=" + options.partition);
  if (!options.time_limit.empty()) argv.push_back("--time=" + options.time_limit);
  if (options.gpus_per_node > 0)
    argv.push_back(fmt::format("--gpus-per-node={}", options.gpus_per_node));
  argv.insert(argv.end(), options.options.begin(), options.options.end());
  return argv;
}

/// Ranks on the nodes, bare or each in Apptainer; nothing runs between launches.
class ClusterEnvironment : public Environment {
 public:
  ClusterEnvironment(const EnvironmentProfile& profile, const StartRequest& request)
      : session_(request.cluster),
        folder_(request.run_id),
        placed_(place_ranks(session_->nodes(), request.ranks, session_->options().ranks_per_node)),
        prefix_(prefix_on_nodes(profile, request, folder_.name())),
        shape_(cluster_shape(session_->options(), placed_, session_->job(), folder_.name(),
                             prefix_)) {
    if (profile.kind == EnvironmentKind::singularity) image_ = apptainer_image_facts();
    if (session_->options().slurm() && !session_->job().empty())
      slurm_ = slurm_facts(session_->job());
  }
  ~ClusterEnvironment() override { end_marked_processes(folder_.name()); }

  LaunchShape shape() const override { return shape_; }

  std::vector<std::string> wrap_rank(int rank, const std::vector<std::string>& command,
                                     const std::map<std::string, std::string>& env) const override {
    return rank_by_ssh(shape_, folder_.name(), rank, command, env);
  }

  /// One command that reaches all nodes at once: a node that does not answer delays no other.
  std::vector<std::vector<std::string>> kill_commands() const override {
    if (session_->options().start == ClusterStart::sbatch) return {};
    std::string script;
    for (const auto& node : placed_) {
      std::vector<std::string> quoted;
      for (const auto& word : session_->node_argv(
               node.name, {"sh", "-c", end_marked_script(), "sh", folder_.name()}))
        quoted.push_back(shell_quote(word));
      script += join(quoted, " ") + " & ";
    }
    return {{"timeout", "20", "sh", "-c", script + "wait"}};
  }

  nlohmann::json provenance() const override {
    nlohmann::json facts = {
        {"engine", prefix_.empty() ? "none" : "apptainer"},
        {"cluster",
         {{"start", name_of(session_->options().start)}, {"placement", placement_text(placed_)}}}};
    auto& cluster = facts["cluster"];
    for (const auto& node : placed_)
      cluster["nodes"].push_back({{"name", node.name}, {"ranks", node.slots}});
    if (!slurm_.empty()) cluster["slurm"] = slurm_;
    cluster["binding"] = "none";
    if (!prefix_.empty()) {
      facts["exec_argv"] = command_line(prefix_);
      facts.update(image_);
    }
    return facts;
  }

  std::vector<nlohmann::json> host_facts() const override {
    std::vector<nlohmann::json> facts;
    for (const auto& report : session_->reports())
      if (!report.facts.is_null()) facts.push_back(report.facts);
    return facts;
  }

  void stop() override {
    end_marked_processes(folder_.name());
    folder_.remove();
  }

 private:
  std::shared_ptr<ClusterSession> session_;
  RunFolder folder_;
  std::vector<ClusterNode> placed_;
  std::vector<std::string> prefix_;
  LaunchShape shape_;
  nlohmann::json image_;
  std::map<std::string, std::string> slurm_;
};

}  // namespace

std::optional<std::string> cluster_unavailable_reason(const EnvironmentProfile& profile,
                                                      const ClusterOptions& options) {
  if (options.slurm()) {
    if (auto reason = slurm_unavailable_reason()) return reason;
  } else if (find_program("ssh").empty()) {
    return "ssh is not in PATH: apt-get install openssh-client";
  }
  if (profile.link_bits_per_s) return "link_bits_per_s caps links of containers, not those of nodes";
  if (profile.kind == EnvironmentKind::bare_metal) return std::nullopt;
  if (profile.kind == EnvironmentKind::singularity) {
    if (profile.launcher == LauncherPlace::inside || profile.ranks_per_container != 1)
      return "one Apptainer container does not reach over nodes: use launcher = \"outside\" and "
             "ranks_per_container = 1 (profile singularity)";
    return std::nullopt;
  }
  const std::string name = "dynamiccl-worker";
  return fmt::format(
      "containers of Docker or Podman are started on this machine alone; on the nodes of a cluster "
      "use singularity. Where Slurm has pyxis it would be: srun --mpi={} --container-image={} "
      "--container-mounts=FOLDER:FOLDER {}WORKER run.json",
      "pmix", name,
      profile.network == Sharing::host ? "" : "--container-unshare=net,ipc,uts ");
}

LaunchShape cluster_shape(const ClusterOptions& options, const std::vector<ClusterNode>& placed,
                          const std::string& job, const std::string& name,
                          const std::vector<std::string>& prefix) {
  LaunchShape shape;
  for (const auto& node : placed) shape.hosts.push_back({node.name, "", node.slots});
  shape.rank_prefix = prefix;
  shape.interface = options.interface;
  shape.launcher_environment = rank_marks(name);
  if (!options.slurm()) {
    shape.launch_agent = "ssh";
    return shape;
  }
  shape.step_prefix = step_argv(options, placed, job, name);
  if (options.start == ClusterStart::sbatch) shape.batch_argv = batch_argv(options, placed);
  if (options.start != ClusterStart::mpirun) return shape;
  shape.slurm_daemons = true;
  shape.launcher_environment.merge(allocation_variables(job.empty() ? "JOB" : job, placed));
  return shape;
}

std::unique_ptr<Environment> start_on_cluster(const EnvironmentProfile& profile,
                                              const StartRequest& request) {
  return std::make_unique<ClusterEnvironment>(profile, request);
}

std::vector<std::vector<std::string>> cluster_start_commands(const StartRequest& request) {
  const ClusterSession& session = *request.cluster;
  const ClusterOptions& options = session.options();
  if (!options.slurm() || options.start == ClusterStart::sbatch || !session.job().empty()) return {};
  return {allocation_argv(options, session.nodes().front().slots, {request.run_id, "HOST", "OWNER"})};
}

LaunchShape cluster_planned_shape(const EnvironmentProfile& profile, const StartRequest& request) {
  const std::string name = RunFolder::planned_name(request.run_id);
  const ClusterSession& session = *request.cluster;
  return cluster_shape(
      session.options(),
      place_ranks(session.nodes(), request.ranks, session.options().ranks_per_node),
      session.job().empty() ? "JOB" : session.job(), name, prefix_on_nodes(profile, request, name));
}

std::vector<std::string> cluster_planned_rank(const EnvironmentProfile& profile,
                                              const StartRequest& request, int rank,
                                              const std::vector<std::string>& command,
                                              const std::map<std::string, std::string>& env) {
  return rank_by_ssh(cluster_planned_shape(profile, request),
                   RunFolder::planned_name(request.run_id), rank, command, env);
}

}  // namespace dynamiccl
