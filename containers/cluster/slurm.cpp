#include "containers/cluster/slurm.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <regex>

#include "containers/command.hpp"
#include "containers/owner.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/host_name.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kMarkWord = "dynamiccl";

std::string slurm_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> host_names(const std::string& list) {
  auto names = split(
      checked_output("cannot read Slurm's node list", {"scontrol", "show", "hostnames", list}),
      '\n');
  std::erase(names, "");
  return names;
}

std::vector<ClusterNode> with_slots(const std::vector<std::string>& names,
                                    const std::vector<int>& slots) {
  if (names.size() != slots.size())
    throw Error(ErrorKind::environment,
                fmt::format("Slurm names {} nodes and counts of {}", names.size(), slots.size()));
  std::vector<ClusterNode> nodes;
  for (std::size_t i = 0; i < names.size(); ++i) nodes.push_back({names[i], slots[i]});
  return nodes;
}

void ask_for_nodes(const ClusterOptions& options, int slots_per_node, const SlurmMark& mark,
                   std::vector<std::string>& argv) {
  argv.insert(argv.end(), {fmt::format("--nodes={}", options.nodes),
                           fmt::format("--ntasks-per-node={}", slots_per_node),
                           "--job-name=dynamiccl", "--comment=" + mark_text(mark)});
  if (!options.partition.empty()) argv.push_back("--partition=" + options.partition);
  if (!options.time_limit.empty()) argv.push_back("--time=" + options.time_limit);
  if (options.gpus_per_node > 0)
    argv.push_back(fmt::format("--gpus-per-node={}", options.gpus_per_node));
  argv.insert(argv.end(), options.options.begin(), options.options.end());
}

/// Value of a `Name=value` word of scontrol's one-line form.
std::string word_of(const std::string& text, const std::string& name) {
  for (const std::string& word : split(text, ' '))
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return "";
}

/// How many processors a job has on each of its nodes, from `scontrol --details show job`.
std::vector<int> processors_of(const std::string& details, const std::vector<std::string>& names) {
  std::map<std::string, int> processors;
  static const std::regex entry(R"( Nodes=(\S+) CPU_IDs=(\S+))");
  for (std::sregex_iterator match(details.begin(), details.end(), entry), end; match != end;
       ++match) {
    int count = 0;
    for (const std::string& range : split((*match)[2].str(), ',')) {
      const auto dash = range.find('-');
      count += dash == std::string::npos
                   ? 1
                   : std::stoi(range.substr(dash + 1)) - std::stoi(range.substr(0, dash)) + 1;
    }
    for (const std::string& name : host_names((*match)[1].str())) processors[name] += count;
  }
  std::vector<int> counts;
  for (const auto& name : names) counts.push_back(std::max(1, processors[name]));
  return counts;
}

/// What Slurm's queue says of a job, "" of one that it has forgotten; nullopt where Slurm does not
/// answer.
std::optional<std::string> queue_answer(const std::string& job, const std::string& format) {
  const auto queue = run_command({"squeue", "--noheader", "--jobs=" + job, "--format=" + format});
  // A forgotten job is an error to squeue.
  if (queue.exit_code != 0 && queue.err.find("Invalid job id") == std::string::npos)
    return std::nullopt;
  return std::string(trim(queue.out));
}

/// What salloc has asked for, though it was ended before it had said so; "" where nothing is seen.
std::string unnamed_job(const SlurmMark& mark) {
  try {
    for (const SlurmJob& job : own_jobs())
      if (job.mark == mark) return job.id;
  } catch (const Error&) {
    // `clean` finds it once Slurm answers.
  }
  return "";
}

/// An allocation that salloc was asked for in vain may wait in the queue all the same, and would be
/// granted some day to nobody.
/// @param cut_short whether salloc was ended by this program, perhaps before it had said a number
/// @returns a clause on why it has waited, "" = nothing was asked for
std::string withdraw(const std::string& said, bool cut_short, const SlurmMark& mark) {
  static const std::regex form(R"((?:Pending|Granted) job allocation (\d+))");
  std::smatch match;
  const bool named = std::regex_search(said, match, form);
  const std::string job = named ? match[1].str() : cut_short ? unnamed_job(mark) : "";
  if (job.empty()) return "";
  const auto reason = queue_answer(job, "%r");
  cancel_job(job);
  return fmt::format(
      "job {} is cancelled{}", job,
      reason && !reason->empty() && *reason != "None" ? "; it waited for " + *reason : "");
}

/// Machines have Slurm's programs without any cluster.
bool is_no_cluster(const std::string& said) {
  return said.find("configuration source") != std::string::npos ||
         said.find("slurm.conf") != std::string::npos;
}

}  // namespace

void forget_step_defaults() {
  for (const char* name :
       {"SLURM_DISTRIBUTION", "SLURM_HOSTFILE", "SLURM_LABELIO", "SLURM_MULTI_PROG",
        "SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_TIMELIMIT"})
    unsetenv(name);
}

std::string mark_text(const SlurmMark& mark) {
  return fmt::format("{} run={} host={} owner={}", kMarkWord, mark.run, mark.host, mark.owner);
}

std::optional<SlurmMark> parse_mark(const std::string& comment) {
  if (!comment.starts_with(std::string(kMarkWord) + " run=")) return std::nullopt;
  return SlurmMark{word_of(comment, "run"), word_of(comment, "host"), word_of(comment, "owner")};
}

SlurmMark own_mark(const std::string& run) { return {run, host_name(), owner_token()}; }

std::vector<SlurmJob> parse_queue(const std::string& text) {
  std::vector<SlurmJob> jobs;
  for (const std::string& line : split(text, '\n')) {
    const auto fields = split(line, '|');
    if (fields.size() < 5) continue;
    const auto mark = parse_mark(fields[4]);
    if (mark) jobs.push_back({fields[0], fields[1], fields[2], fields[3], *mark});
  }
  return jobs;
}

std::vector<SlurmJob> own_jobs() {
  return parse_queue(
      checked_output("Slurm does not answer", {"squeue", "--me", "--array", "--noheader",
                                               "--states=PENDING,RUNNING,"
                                               "SUSPENDED,CONFIGURING,STOPPED",
                                               std::string("--format=") + kQueueFormat}));
}

std::vector<int> parse_counts(const std::string& text) {
  static const std::regex form(R"((\d{1,6})(?:\(x(\d{1,6})\))?)");
  std::vector<int> counts;
  for (const std::string& part : split(text, ',')) {
    std::smatch match;
    if (!std::regex_match(part, match, form))
      throw Error(ErrorKind::environment,
                  fmt::format("\"{}\" are no counts as Slurm writes them, \"2(x3),1\"", text));
    const int times = match[2].matched ? std::stoi(match[2].str()) : 1;
    counts.insert(counts.end(), static_cast<std::size_t>(times), std::stoi(match[1].str()));
  }
  return counts;
}

std::optional<std::string> slurm_unavailable_reason() {
  for (const char* program : {"salloc", "srun", "squeue", "scontrol", "scancel"})
    if (find_program(program).empty())
      return fmt::format(
          "{} is not in PATH: start dynamiccl on a login node of the cluster, or "
          "apt-get install slurm-client",
          program);
  return std::nullopt;
}

std::optional<SlurmAllocation> surrounding_allocation() {
  const std::string job = slurm_variable("SLURM_JOB_ID");
  if (job.empty()) return std::nullopt;
  const std::string list = slurm_variable("SLURM_JOB_NODELIST");
  // Without a number of tasks Slurm counts one for each node, whatever the job may use there.
  const std::string counts = slurm_variable("SLURM_NTASKS").empty()
                                 ? slurm_variable("SLURM_JOB_CPUS_PER_NODE")
                                 : slurm_variable("SLURM_TASKS_PER_NODE");
  if (const std::string parts = slurm_variable("SLURM_HET_SIZE"); !parts.empty())
    throw Error(ErrorKind::environment,
                fmt::format("Slurm job {} is heterogeneous, of {} components, and ranks are placed "
                            "on one kind of node: ask for a job without \"hetjob\"",
                            job, parts));
  if (list.empty() || counts.empty())
    throw Error(ErrorKind::environment,
                fmt::format("this is Slurm job {}, but SLURM_JOB_NODELIST or the counts per node "
                            "are not set: start dynamiccl in the job's own shell or batch script",
                            job));
  return SlurmAllocation{job, with_slots(host_names(list), parse_counts(counts)), false};
}

std::vector<std::string> allocation_argv(const ClusterOptions& options, int slots_per_node,
                                         const SlurmMark& mark) {
  std::vector<std::string> argv{"salloc", "--no-shell"};
  ask_for_nodes(options, slots_per_node, mark, argv);
  return argv;
}

std::vector<std::string> submission_argv(const ClusterOptions& options, int slots_per_node,
                                         const SlurmMark& mark, int count, const std::string& after,
                                         const std::string& held_s) {
  // One that Slurm has put back into its queue would come to its turn out of order.
  std::vector<std::string> argv{"sbatch", "--parsable", "--no-requeue"};
  if (options.jobs == ClusterJobs::array) argv.push_back(fmt::format("--array=0-{}%1", count - 1));
  if (options.jobs == ClusterJobs::singleton) argv.emplace_back("--dependency=singleton");
  if (options.jobs == ClusterJobs::afterany && !after.empty())
    argv.push_back("--dependency=afterany:" + after);
  argv.insert(argv.end(), {"--output=/dev/null", "--error=/dev/null"});
  ask_for_nodes(options, slots_per_node, mark, argv);
  // Not for ever: a program that is killed leaves all of them, and nobody who cancels them.
  argv.push_back("--wrap=exec sleep " + held_s);
  return argv;
}

SlurmAllocation allocate(const ClusterOptions& options, int slots_per_node, const SlurmMark& mark,
                         const Progress& progress) {
  const auto argv = allocation_argv(options, slots_per_node, mark);
  if (progress.say != nullptr)
    progress.say(fmt::format("asks Slurm for {} node{}: {}", options.nodes,
                             options.nodes == 1 ? "" : "s", command_line(argv)));
  CommandOptions waiting;
  waiting.timeout = std::chrono::seconds(options.wait_s);
  waiting.interrupted = progress.interrupted;
  const auto result = run_command(argv, waiting);
  std::smatch match;
  static const std::regex granted(R"(Granted job allocation (\d+))");
  if (result.exit_code != 0 || !std::regex_search(result.err, match, granted)) {
    const std::string withdrawn =
        withdraw(result.err, result.timed_out || result.interrupted, mark);
    if (!result.timed_out) throw command_failure("Slurm gave no allocation", argv, waiting, result);
    throw Error(ErrorKind::environment,
                fmt::format("Slurm gave no {} node{} within {} s (cluster.wait): {}", options.nodes,
                            options.nodes == 1 ? "" : "s", options.wait_s,
                            withdrawn.empty() ? std::string(trim(result.err)) : withdrawn));
  }
  SlurmAllocation allocation{match[1].str(), {}, true};
  try {
    allocation.nodes = whole_nodes(allocation.job, options, slots_per_node);
  } catch (...) {
    cancel_job(allocation.job);
    throw;
  }
  return allocation;
}

std::vector<ClusterNode> whole_nodes(const std::string& job, const ClusterOptions& options,
                                     int slots_per_node) {
  auto nodes = nodes_of_job(job);
  if (nodes.size() < static_cast<std::size_t>(options.nodes))
    throw Error(ErrorKind::environment,
                fmt::format("Slurm gave job {} {} of the {} nodes that were asked for ({}): groups "
                            "on fewer nodes are others; ask for {} with --nodes, or leave a range "
                            "of nodes out of cluster.options",
                            job, nodes.size(), options.nodes, placement_text(nodes), nodes.size()));
  for (auto& node : nodes) node.slots = slots_per_node;
  return nodes;
}

std::vector<ClusterNode> nodes_of_job(const std::string& job) {
  const std::string details = checked_output(
      "Slurm does not know the job", {"scontrol", "--oneliner", "--details", "show", "job", job});
  const std::string list = word_of(details, "NodeList");
  if (list.empty() || list == "(null)")
    throw Error(ErrorKind::environment, fmt::format("Slurm job {} has no nodes", job));
  const auto names = host_names(list);
  return with_slots(names, processors_of(details, names));
}

bool job_runs(const std::string& job, std::chrono::seconds timeout, const Progress& progress) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (bool said = false;; said = true) {
    if (const auto state = queue_answer(job, "%T")) return *state == "RUNNING";
    if (progress.interrupted && progress.interrupted())
      throw Error(ErrorKind::environment, "interrupted while Slurm does not answer");
    if (std::chrono::steady_clock::now() >= end)
      throw Error(ErrorKind::environment,
                  fmt::format("Slurm does not answer (squeue), so that nothing starts in its job "
                              "{}: does slurmctld run (scontrol ping)?",
                              job));
    if (!said && progress.say != nullptr)
      progress.say(
          fmt::format("Slurm does not answer: it is asked again for {} s", timeout.count()));
    usleep(500000);
  }
}

long slurm_seconds(const std::string& text) {
  static const std::regex form(R"((?:(?:(\d{1,5})-)?(\d{1,2}):)?(\d{1,2}):(\d{1,2}))");
  std::smatch match;
  if (!std::regex_match(text, match, form)) return 0;
  const auto part = [&](int i) {
    return match[static_cast<std::size_t>(i)].matched
               ? std::stol(match[static_cast<std::size_t>(i)])
               : 0L;
  };
  return ((part(1) * 24 + part(2)) * 60 + part(3)) * 60 + part(4);
}

long run_time_s(const std::string& job) {
  const auto queue = run_command({"squeue", "--noheader", "--jobs=" + job, "--format=%M"});
  return slurm_seconds(std::string(trim(queue.out)));
}

std::string ending_of(const std::string& job, const std::string& details) {
  const std::string state = word_of(details, "JobState");
  const std::string reason = word_of(details, "Reason");
  const std::string preempted = word_of(details, "PreemptTime");
  const long limit_s = slurm_seconds(word_of(details, "TimeLimit"));
  // Slurm ends a job some seconds after its limit, and begins no step in it then.
  const bool over = limit_s > 0 && slurm_seconds(word_of(details, "RunTime")) >= limit_s;
  if (state == "TIMEOUT" || reason == "TimeLimit" || (state == "RUNNING" && over))
    return fmt::format("Slurm job {} has reached its time limit of {} (cluster.time_limit)", job,
                       word_of(details, "TimeLimit"));
  if (state == "PREEMPTED" || reason == "Preempted" ||
      (!preempted.empty() && preempted != "None" && preempted != "N/A"))
    return fmt::format("Slurm job {} was preempted: another job goes before it", job);
  if (state == "NODE_FAIL" || reason == "NodeDown" || reason == "NodeFail")
    return fmt::format("Slurm job {} has lost a node", job);
  if (state == "PENDING" || state == "REQUEUED" || state == "REQUEUE_HOLD" ||
      state == "REQUEUE_FED" || state == "CONFIGURING")
    return fmt::format("Slurm has put job {} back into its queue ({} restarts)", job,
                       word_of(details, "Restarts"));
  if (state == "CANCELLED") return fmt::format("Slurm job {} was cancelled", job);
  if (state == "RUNNING") return "";
  return fmt::format("Slurm job {} is over ({})", job, state.empty() ? "unknown by now" : state);
}

std::string why_job_ended(const std::string& job, std::chrono::seconds timeout,
                          const Progress& progress) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  // Until its last process is gone a job is COMPLETING, whatever it will be.
  for (;;) {
    const auto details = run_command({"scontrol", "--oneliner", "show", "job", job});
    // slurmctld may be away: nothing is known.
    if (details.exit_code != 0 && details.err.find("Invalid job id") == std::string::npos)
      return "";
    const std::string why = ending_of(job, details.out);
    if (why.find("(COMPLETING)") == std::string::npos ||
        std::chrono::steady_clock::now() >= deadline ||
        (progress.interrupted != nullptr && progress.interrupted()))
      return why;
    usleep(200000);
  }
}

std::string job_number(const std::string& job) {
  if (job.find('_') == std::string::npos) return job;
  const auto queue = run_command({"squeue", "--noheader", "--jobs=" + job, "--format=%A"});
  const std::string number(trim(queue.out));
  const bool digits =
      !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return digits ? number : job;
}

std::string array_of(const std::string& job) { return job.substr(0, job.find('_')); }

int asked_nodes(const std::string& job) {
  const auto details = run_command({"scontrol", "--oneliner", "show", "job", job});
  // "2", and "2-2" while it waits.
  return std::atoi(word_of(details.out, "NumNodes").c_str());
}

bool wait_for_job(const std::string& job, const ClusterOptions& options, const Progress& progress) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.wait_s);
  unsigned pause_us = 50000;
  for (;;) {
    const auto answer = queue_answer(job, "%T|%r");
    const auto words = split(answer.value_or("|Slurm does not answer"), '|');
    const std::string state = words.front();
    if (state == "RUNNING") return true;
    // Slurm is asked again where it does not answer.
    if (answer && state != "PENDING" && state != "CONFIGURING") return false;
    if (progress.interrupted && progress.interrupted())
      throw Error(ErrorKind::environment, "interrupted while waiting for Slurm job " + job);
    if (std::chrono::steady_clock::now() > end)
      throw Error(ErrorKind::environment,
                  fmt::format("Slurm job {} did not start within {} s (cluster.wait): {}", job,
                              options.wait_s, words.back()));
    usleep(pause_us);
    pause_us = std::min(2 * pause_us, 500000U);
  }
}

void end_steps(const std::string& job) {
  const auto steps =
      run_command({"squeue", "--noheader", "--steps", "--jobs=" + job, "--format=%i"});
  for (const std::string& step : split(steps.out, '\n')) {
    const std::string id(trim(step));
    // The step that holds an allocation open is Slurm's own.
    if (id.empty() || id.ends_with(".extern") || id.ends_with(".batch") ||
        id.ends_with(".interactive"))
      continue;
    run_command({"scancel", "--signal=KILL", id});
  }
}

void cancel_job(const std::string& job, std::chrono::seconds timeout) {
  const auto over = [](const std::string& state) {
    return state.empty() || state == "COMPLETING" || state == "CANCELLED";
  };
  auto cancelled = run_command({"scancel", job});
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto answer = queue_answer(job, "%T");
    const auto states = split(answer.value_or(""), '\n');
    if (answer && std::all_of(states.begin(), states.end(), over)) return;
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error(
          ErrorKind::environment,
          fmt::format("Slurm job {} is {}: `scancel {}`, or `dynamiccl clean` once this "
                      "program has ended{}{}",
                      job, answer ? "still there" : "not cancelled, as Slurm does not answer", job,
                      cancelled.err.empty() ? "" : ": ", trim(cancelled.err)));
    usleep(100000);
    // It may have been away.
    if (cancelled.exit_code != 0) cancelled = run_command({"scancel", job});
  }
}

std::map<std::string, std::string> allocation_variables(const std::string& job,
                                                        const std::vector<ClusterNode>& nodes) {
  std::vector<std::string> names;
  std::vector<std::string> counts;
  int tasks = 0;
  for (const auto& node : nodes) {
    names.push_back(node.name);
    counts.push_back(std::to_string(node.slots));
    tasks += node.slots;
  }
  const std::string list = join(names, ",");
  const std::string per_node = join(counts, ",");
  const std::string number = std::to_string(nodes.size());
  return {{"SLURM_JOB_ID", job},
          {"SLURM_JOBID", job},
          {"SLURM_JOB_NODELIST", list},
          {"SLURM_NODELIST", list},
          {"SLURM_JOB_NUM_NODES", number},
          {"SLURM_NNODES", number},
          {"SLURM_TASKS_PER_NODE", per_node},
          {"SLURM_JOB_CPUS_PER_NODE", per_node},
          {"SLURM_NTASKS", std::to_string(tasks)},
          {"SLURM_NPROCS", std::to_string(tasks)}};
}

std::map<std::string, std::string> slurm_facts(const std::string& job) {
  std::map<std::string, std::string> facts{{"job", job}};
  const auto version = run_command({"scontrol", "--version"});
  facts["slurm"] = std::string(trim(version.out));
  const auto details = run_command({"scontrol", "--oneliner", "show", "job", job});
  for (const char* name : {"Partition", "TimeLimit", "Requeue", "TRES"})
    if (auto value = word_of(details.out, name); !value.empty()) facts[name] = value;
  const auto topology = run_command({"scontrol", "--oneliner", "show", "topology"});
  facts["topology"] = topology.exit_code == 0 ? std::string(trim(topology.out)) : "";
  return facts;
}

std::vector<std::string> clean_jobs() {
  if (slurm_unavailable_reason()) return {};
  std::vector<SlurmJob> jobs;
  try {
    jobs = own_jobs();
  } catch (const Error& error) {
    if (is_no_cluster(error.what())) return {};
    throw;
  }
  std::map<std::string, std::pair<std::string, int>> left;  ///< of arrays and jobs: run and tasks
  const std::string here = host_name();
  for (const auto& job : jobs)
    if (job.mark.host == here && !owner_alive(job.mark.owner)) {
      left[array_of(job.id)].first = job.mark.run;
      ++left[array_of(job.id)].second;
    }
  std::vector<std::string> lines;
  for (const auto& [job, found] : left) {
    cancel_job(job);
    lines.push_back(fmt::format("Slurm job {} of run {}{}", job, found.first,
                                found.second > 1 ? fmt::format(", {} tasks", found.second) : ""));
  }
  return lines;
}

}  // namespace dynamiccl
