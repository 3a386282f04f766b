#include "containers/cluster/cluster_session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>
#include <utility>

#include "containers/cluster/node_latency.hpp"
#include "containers/cluster/node_links.hpp"
#include "containers/owner.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"
#include "embedded/survey_node_sh.hpp"

namespace dynamiccl {
namespace {

constexpr std::chrono::seconds kSurveyTimeout{60};
/// A host that is started anew comes back in about this time; a run does not stand still for
/// longer.
constexpr std::chrono::seconds kLostHosts{60};
/// slurmctld that is started anew is back in about this time.
constexpr std::chrono::seconds kSlurmAway{120};
/// Connections that are opened at once: sshd refuses more than ten that have not logged in yet, but
/// those go to one host each; this many are what a login node bears.
constexpr std::size_t kAtOnce = 32;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A file in a folder that every node should see, gone at the end.
class Nonce {
 public:
  explicit Nonce(const std::string& folder)
      : path_(fmt::format("{}/.seen-by-all-{}", folder, getpid())), text_(owner_token()) {
    std::ofstream(path_) << text_ << "\n";
  }
  ~Nonce() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  Nonce(const Nonce&) = delete;
  Nonce& operator=(const Nonce&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string path_;
  std::string text_;
};

/// Printed on a node before a command runs there: what stands in front was said by the user's own
/// start-up files, and is no answer.
constexpr std::string_view kBegins = "dynamiccl-on-node";

std::vector<std::string> after_start_up(const std::vector<std::string>& command) {
  std::vector<std::string> argv{"sh", "-c", fmt::format("echo; echo {}; exec \"$@\"", kBegins),
                                "sh"};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

void drop_start_up(std::string& out) {
  const auto found = out.find(fmt::format("\n{}\n", kBegins));
  out.erase(0, found == std::string::npos ? found : found + kBegins.size() + 2);
}

void give_back(const std::string& job) {
  try {
    cancel_job(job);
  } catch (const Error&) {
    // `clean` finds it by its mark.
  }
}

/// The allocation around this process can hold what is asked for.
void require_room(const ClusterOptions& options, const SlurmAllocation& around) {
  if (options.job_per_launch())
    throw Error(ErrorKind::input,
                fmt::format("cluster.jobs = \"{}\" asks for jobs of their own, but this program "
                            "runs in Slurm job {}: start it outside of any job, or leave "
                            "cluster.jobs at \"one\"",
                            name_of(options.jobs), around.job));
  if (static_cast<std::size_t>(options.nodes) > around.nodes.size())
    throw Error(
        ErrorKind::input,
        fmt::format("{} nodes are asked for (--nodes, cluster.nodes), but Slurm job {} has "
                    "{}: {}",
                    options.nodes, around.job, around.nodes.size(), placement_text(around.nodes)));
}

}  // namespace

std::vector<std::string> remote_prefix(const ClusterOptions& options, const std::string& host) {
  if (!options.remote_shell.empty()) return {options.remote_shell, host};
  // A host that is gone without a word is noticed after a minute, not by TCP in hours.
  return {"ssh",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=15",
          "-o",
          "ServerAliveInterval=15",
          "-o",
          "ServerAliveCountMax=4",
          host};
}

ClusterSession::ClusterSession(ClusterOptions options, int slots_per_node)
    : options_(std::move(options)),
      slots_per_node_(std::max(1, slots_per_node)),
      queue_(options_, slots_per_node_) {
  if (!options_.slurm()) {
    allocation_.nodes = options_.hosts;
    return;
  }
  forget_step_defaults();
  if (auto around = surrounding_allocation()) {
    require_room(options_, *around);
    allocation_ = *around;
    if (options_.nodes > 0 && static_cast<std::size_t>(options_.nodes) < allocation_.nodes.size())
      allocation_.nodes.resize(static_cast<std::size_t>(options_.nodes));
  }
}

ClusterSession::~ClusterSession() {
  try {
    release();
  } catch (const Error& error) {
    // `clean` finds it by its mark.
    tell(fmt::format("{}\n", error.what()));
  }
}

std::vector<ClusterNode> ClusterSession::nodes() const {
  if (!allocation_.nodes.empty() && !narrowed_.empty()) {
    std::vector<ClusterNode> chosen;
    for (const auto& node : allocation_.nodes)
      if (std::find(narrowed_.begin(), narrowed_.end(), node.name) != narrowed_.end())
        chosen.push_back(node);
    return chosen;
  }
  if (!allocation_.nodes.empty()) return allocation_.nodes;
  std::vector<ClusterNode> unknown;
  for (int i = 0; i < options_.nodes; ++i)
    unknown.push_back({fmt::format("NODE{}", i + 1), slots_per_node_});
  return unknown;
}

SlurmAllocation ClusterSession::left_allocation(const std::string& run_id,
                                                const Progress& progress) const {
  const SlurmMark mine = own_mark(run_id);
  for (const auto& job : own_jobs()) {
    if (job.mark.run != run_id || job.mark.host != mine.host || job.name != "dynamiccl" ||
        owner_alive(job.mark.owner) || !(job.waits() || job.state == "RUNNING") ||
        asked_nodes(job.id) != options_.nodes)
      continue;
    checked_output("cannot take over the allocation",
                   {"scontrol", "update", "job", job.id, "comment=" + mark_text(mine)});
    if (progress.say != nullptr)
      progress.say(fmt::format("takes over Slurm job {} of this run{}", job.id,
                               job.waits() ? ", which still waits: " + job.reason : ""));
    try {
      if (!wait_for_job(job.id, options_, progress)) {
        give_back(job.id);
        continue;
      }
      SlurmAllocation found{job.id, whole_nodes(job.id, options_, slots_per_node_), true};
      // Whatever its steps are, nobody waits for them any more.
      end_steps(job.id);
      return found;
    } catch (...) {
      // It is this run's by now, and no allocation yet that release() would give back.
      give_back(job.id);
      throw;
    }
  }
  return {};
}

void ClusterSession::get_allocation(const std::string& run_id, const Progress& progress) {
  if (const auto reason = slurm_unavailable_reason()) throw Error(ErrorKind::environment, *reason);
  if (!allocation_.job.empty()) {
    // Images, say, were built since: it could end in the middle of a launch.
    if (!spent_ && options_.job_per_launch() && allocation_.ours)
      spent_ = run_time_s(allocation_.job) > SlurmQueue::kStart.count();
    const auto timeout =
        std::exchange(slurm_was_away_, true) ? std::chrono::seconds(0) : kSlurmAway;
    const bool runs = !spent_ && job_runs(allocation_.job, timeout, progress);
    slurm_was_away_ = false;
    if (runs) return;
    const std::string why =
        spent_
            ? ""
            : dynamiccl::why_job_ended(
                  allocation_.job, allocation_.ours ? kUntilJobIsGone : kMomentOfEnding, progress);
    if (!allocation_.ours)
      throw Error(ErrorKind::environment,
                  fmt::format("Slurm job {}, in which this program was started, is over: {}",
                              allocation_.job, why));
    if (!why.empty() && progress.say != nullptr) progress.say(why);
    release_allocation();
  }
  if (keeps_nodes_ && !were_well_.empty())
    throw Error(ErrorKind::environment,
                "Slurm has ended the job whose nodes are compared; start again for other nodes");
  if (options_.job_per_launch()) {
    // What a node has said holds for the jobs after it too.
    allocation_ = queue_.next(own_mark(run_id), progress);
    return;
  }
  reports_.clear();
  surveyed_.clear();
  allocation_ = left_allocation(run_id, progress);
  if (!allocation_.job.empty()) return;
  allocation_ = allocate(options_, slots_per_node_, own_mark(run_id), progress);
  if (progress.say != nullptr)
    progress.say(
        fmt::format("Slurm job {}: {}", allocation_.job, placement_text(allocation_.nodes)));
}

void ClusterSession::hold(const std::string& run_id, const std::vector<std::string>& folders,
                          const std::vector<std::string>& programs, const Progress& progress) {
  progress_ = progress;
  if (options_.slurm()) get_allocation(run_id, progress);
  std::vector<std::string> all = folders;
  all.insert(all.end(), programs.begin(), programs.end());
  if (all != surveyed_) reports_.clear();
  survey(folders, programs);
  if (lost_one() && !keeps_nodes_) replace_nodes(run_id, folders, programs, progress);
  if (const auto problems = problems_text(reports()); !problems.empty()) {
    doubt();
    throw Error(ErrorKind::environment,
                fmt::format("not every node can take ranks:\n  {}", problems));
  }
  surveyed_ = all;
  for (const auto& report : reports()) were_well_.insert(report.name);
  waited_ = false;
}

void ClusterSession::keep_nodes() {
  keeps_nodes_ = true;
  // A node that dies takes no other with it.
  if (options_.slurm()) options_.options.emplace_back("--no-kill");
}

void ClusterSession::doubt() {
  for (const auto& node : nodes()) reports_.erase(node.name);
}

std::vector<NodeReport> ClusterSession::reports() const {
  std::vector<NodeReport> of_nodes;
  for (const auto& node : nodes())
    if (const auto found = reports_.find(node.name); found != reports_.end())
      of_nodes.push_back(found->second);
  return of_nodes;
}

bool ClusterSession::lost_one() const {
  const auto all = reports();
  return std::any_of(all.begin(), all.end(), [&](const NodeReport& report) {
    return !report.problem.empty() && were_well_.contains(report.name);
  });
}

void ClusterSession::replace_nodes(const std::string& run_id,
                                   const std::vector<std::string>& folders,
                                   const std::vector<std::string>& programs,
                                   const Progress& progress) {
  if (progress.say != nullptr) progress.say("nodes were lost: " + problems_text(reports()));
  if (allocation_.ours) {
    // Slurm may take its time to notice; until then every step of this job fails.
    release_allocation();
    get_allocation(run_id, progress);
    survey(folders, programs);
    return;
  }
  const auto end = std::chrono::steady_clock::now() + kLostHosts;
  while (!waited_ && std::chrono::steady_clock::now() < end &&
         !(progress.interrupted && progress.interrupted())) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    survey(folders, programs);
    if (problems_text(reports()).empty()) return;
  }
  waited_ = true;
}

void ClusterSession::survey(const std::vector<std::string>& folders,
                            const std::vector<std::string>& programs) {
  std::vector<ClusterNode> asked = nodes();
  std::erase_if(asked, [&](const ClusterNode& node) {
    const auto known = reports_.find(node.name);
    return known != reports_.end() && known->second.problem.empty();
  });
  if (asked.empty()) return;
  // The last folder is the one that launches write into; the others hold programs.
  const std::string& written = folders.back();
  const Nonce nonce(written);
  std::vector<std::string> command{
      "sh",         "-c",         std::string(embedded::survey_node_sh), "sh",
      nonce.path(), nonce.text(), folders.front() + "/dynamiccl-probe"};
  command.insert(command.end(), programs.begin(), programs.end());
  command.emplace_back("--");
  command.insert(command.end(), folders.begin(), folders.end() - 1);
  CommandOptions options;
  options.timeout = kSurveyTimeout;
  options.interrupted = progress_.interrupted;
  const auto results = on_nodes(asked, command, options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    NodeReport report = read_node_report(asked[i].name, results[i], kSurveyTimeout);
    if (report.apart && options_.records == RecordsWay::folder)
      report.problem += fmt::format(
          "{}does not see this machine's {}: put the database or --out into a folder that all "
          "nodes share, or leave cluster.records at \"auto\"",
          report.problem.empty() ? "" : "; ", written);
    if (const auto why = why_no_interface(report.facts, options_.interface);
        !options_.interface.empty() && !why.empty())
      report.problem += (report.problem.empty() ? "" : "; ") + why;
    reports_[asked[i].name] = std::move(report);
  }
  // Slurm's names are its own; a list of hosts may have two of one machine.
  if (options_.slurm()) return;
  for (const auto& [name, problem] : named_twice(reports()))
    reports_[name].problem += (reports_[name].problem.empty() ? "" : "; ") + problem;
}

std::string ClusterSession::ended_for_memory() {
  constexpr std::chrono::seconds kTimeout{15};
  CommandOptions options;
  options.timeout = kTimeout;
  options.interrupted = progress_.interrupted;
  const auto asked = nodes();
  const auto results = on_nodes(asked, {"grep", "^oom_kill ", "/proc/vmstat"}, options);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto known = reports_.find(asked[i].name);
    const auto now = oom_kills_in(results[i].out);
    if (known == reports_.end() || !known->second.oom_kills || !now) continue;
    if (*now > *known->second.oom_kills)
      names.push_back(fmt::format("{} ({})", asked[i].name, *now - *known->second.oom_kills));
    known->second.oom_kills = now;
  }
  if (names.empty()) return "";
  return fmt::format(
      "the kernel has ended processes for want of memory since the node was asked: {} (oom_kill of "
      "the machine and all its control groups): ask for smaller sizes or fewer ranks, or raise the "
      "limit there",
      join(names, ", "));
}

bool ClusterSession::records_over_tcp() const {
  const auto all = reports();
  return options_.records == RecordsWay::tcp ||
         std::any_of(all.begin(), all.end(), [](const NodeReport& report) { return report.apart; });
}

const NodePlaces& ClusterSession::measured_places() {
  // Of two nodes there is one pair, which is near to nobody; of very many it takes minutes.
  constexpr std::size_t kLeast = 3;
  constexpr std::size_t kMost = 64;
  constexpr int kRounds = 2;
  std::vector<std::string> names;
  for (const auto& node : nodes()) names.push_back(node.name);
  if (surveyed_.empty() || names == latency_of_) return measured_places_;
  latency_of_ = names;
  measured_places_.clear();
  const auto argv = [this](const std::string& node, const std::vector<std::string>& command,
                           bool takes_input) { return node_argv(node, command, takes_input); };
  if (names.size() < kLeast || names.size() > kMost) return measured_places_;
  if (progress_.say != nullptr)
    progress_.say(fmt::format("measuring the latency between {} nodes (once)", names.size()));
  measured_places_ = places_by_latency(measure_latencies(
      names, argv, surveyed_.front() + "/dynamiccl-probe", options_.interface, kRounds, progress_));
  return measured_places_;
}

std::vector<std::string> ClusterSession::node_argv(const std::string& node,
                                                   const std::vector<std::string>& command,
                                                   bool takes_input) const {
  if (!options_.slurm()) {
    auto argv = remote_prefix(options_, node);
    const std::string line = command_line(command);
    const bool plain = line.find_first_of("\n\\!") == std::string::npos;
    argv.push_back(plain ? line : login_shell_line(line));
    return argv;
  }
  std::vector<std::string> argv{"srun",
                                "--jobid=" + (allocation_.job.empty() ? "JOB" : allocation_.job),
                                "--overlap",
                                "--nodes=1",
                                "--ntasks=1",
                                "--nodelist=" + node,
                                "--mpi=none",
                                "--export=ALL",
                                "--job-name=dynamiccl"};
  if (!takes_input) argv.emplace_back("--input=none");
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

std::vector<NodeResult> ClusterSession::on_nodes(const std::vector<ClusterNode>& nodes,
                                                 const std::vector<std::string>& command,
                                                 const CommandOptions& options) const {
  std::vector<NodeResult> results(nodes.size());
  const auto begun = after_start_up(command);
  for (std::size_t first = 0; first < results.size(); first += kAtOnce) {
    std::vector<std::future<void>> running;
    for (std::size_t i = first; i < std::min(results.size(), first + kAtOnce); ++i) {
      running.push_back(std::async(std::launch::async, [&, i] {
        const double began_s = now_s();
        try {
          results[i] = {
              run_command(node_argv(nodes[i].name, begun, !options.input_file.empty()), options)};
          drop_start_up(results[i].out);
        } catch (const Error& error) {
          results[i].exit_code = 127;
          results[i].err = error.what();
        }
        results[i].began_s = began_s;
        results[i].ended_s = now_s();
      }));
    }
    for (auto& one : running) one.get();
  }
  return results;
}

std::string ClusterSession::why_job_ended(bool interrupted) const {
  if (allocation_.job.empty()) return "";
  return dynamiccl::why_job_ended(
      allocation_.job, allocation_.ours && !interrupted ? kUntilJobIsGone : kMomentOfEnding);
}

void ClusterSession::release() {
  try {
    queue_.cancel();
  } catch (const Error&) {
    release_allocation();
    throw;
  }
  release_allocation();
}

void ClusterSession::release_allocation() {
  // One that Slurm keeps stays ours, to be given back later.
  if (allocation_.ours && !allocation_.job.empty()) {
    cancel_job(allocation_.cancelled_by());
    allocation_ = {};
  }
  spent_ = false;
}

}  // namespace dynamiccl
