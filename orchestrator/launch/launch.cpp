#include "orchestrator/launch/launch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "containers/local_ranks.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/seconds_variable.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/record_frames.hpp"
#include "core/wire/work_settings.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/integrity.hpp"
#include "orchestrator/launch/noise_gate.hpp"
#include "orchestrator/launch/observe.hpp"
#include "orchestrator/launch/post_mortem.hpp"
#include "orchestrator/launch/simulated_launch.hpp"
#include "orchestrator/launch/tuned_training.hpp"
#include "orchestrator/plan/gpu_placement.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/network_interface.hpp"
#include "profiles/detect/noise.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "train/spec/training.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStoredStderrBytes = 4096;
/// What ranks have sent before they ended may still be under way.
constexpr Micros kLateRecords{5e6};
/// Whoever has interrupted them waits for less.
constexpr Micros kUnwantedRecords{0.5e6};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file)
    throw Error(ErrorKind::environment,
                fmt::format("{}: cannot be written: is the disk full or the folder not yours? "
                            "Choose another with --out",
                            path));
}

bool needs_rendezvous(Backend backend) { return launcher_for(backend).name == "local"; }

std::string describe_stopped(const ProcessOutcome& outcome) {
  const auto number = fmt::format("(pid {})", outcome.stopped);
  std::string who = fmt::format("process {}", outcome.stopped);
  for (const auto& state : outcome.states)
    if (const auto at = state.find(number); at != std::string::npos)
      who = state.substr(0, at + number.size());
  return fmt::format(
      "{} was stopped by a signal and not continued for {:.3g} s (DYNAMICCL_STOPPED_S), so all "
      "processes were ended; find who stops them (kill -STOP, a shell's job control, a batch "
      "system) and run again with --resume; until then: {}",
      who, stopped_limit().seconds(), join(outcome.states, "; "));
}

/// "rank 1 was", "ranks 1, 2 were", or "a process was" where nobody says whose end it is.
std::string who_ended(const std::vector<int>& ranks, const char* one, const char* several) {
  if (ranks.empty()) return std::string("a process") + one;
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", join(numbers, ", "),
                     ranks.size() == 1 ? one : several);
}

/// One line for people: how the processes ended, "" when well.
std::string describe_end(const ProcessOutcome& outcome, Micros timeout, std::size_t count) {
  if (outcome.interrupted_by != 0)
    return fmt::format("interrupted by {}", outcome.interrupted_by == SIGINT ? "Ctrl-C (SIGINT)"
                                            : outcome.interrupted_by == SIGHUP
                                                ? "SIGHUP: its terminal was closed"
                                                : "SIGTERM");
  if (outcome.stopped != 0) return describe_stopped(outcome);
  if (outcome.deserted)
    return fmt::format(
        "every rank had ended and the launcher had not {:.3g} s later (DYNAMICCL_STOPPED_S), so it "
        "was ended; run again with --resume; until then: {}",
        stopped_limit().seconds(), join(outcome.states, "; "));
  if (outcome.timed_out)
    return fmt::format("no end after {} s (protocol.launch_timeout): all processes were ended{}",
                       timeout.seconds() < 10 ? fmt::format("{:.3g}", timeout.seconds())
                                              : fmt::format("{:.0f}", timeout.seconds()),
                       outcome.states.empty() ? "" : "; until then: " + join(outcome.states, "; "));
  if (outcome.ended_early)
    return "the aggregator that summed for the ranks ended before they did, and so they were "
           "ended; if nobody did it, the kernel's log may say why; run again with --resume";
  const ProcessResult* failure = outcome.first_failure();
  if (failure == nullptr) return "";
  if (!failure->start_error.empty()) return "could not be started: " + failure->start_error;
  const auto ranks = ranks_behind(outcome, count);
  if (const int signal = signal_behind_launcher(outcome); signal != 0)
    return fmt::format("{} ended by signal {} ({})", who_ended(ranks, " was", " were"), signal,
                       strsignal(signal));
  return fmt::format("{} ended with exit code {}", who_ended(ranks, "", ""),
                     exit_code_behind_launcher(outcome));
}

std::string last_lines(const std::string& text, std::size_t count) {
  auto lines = split(std::string(trim(text)), '\n');
  if (lines.size() > count)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return join(lines, "\n    ");
}

std::string stderr_of(const ProcessOutcome& outcome) {
  const ProcessResult* failure = outcome.first_failure();
  std::string text = failure != nullptr ? failure->stderr_tail : "";
  // A killed rank says nothing; what others say of it is all there is.
  if (trim(text).empty())
    for (const auto& result : outcome.results) text += result.stderr_tail;
  if (text.size() > kStoredStderrBytes) text.erase(0, text.size() - kStoredStderrBytes);
  return text;
}

LaunchStatus status_of(const ProcessOutcome& outcome, const std::string& reason) {
  if (outcome.interrupted_by != 0) return LaunchStatus::interrupted;
  if (outcome.timed_out) return LaunchStatus::timed_out;
  return reason.empty() ? LaunchStatus::ok : LaunchStatus::failed;
}

}  // namespace

std::vector<std::string> recorded_argv(const std::vector<Command>& commands) {
  if (commands.size() == 1) return recorded_command(commands.front().argv);
  // Ranks without a launcher: what a shell would be given to start them together.
  std::vector<std::string> argv;
  for (const auto& command : commands) {
    if (!argv.empty()) argv.emplace_back("&");
    argv.insert(argv.end(), command.argv.begin(), command.argv.end());
  }
  return recorded_command(argv);
}

namespace {

constexpr double kSlowBytesPerUs = 10;
constexpr int kLeastRounds = 2;  ///< that gossip is compared in

/// Steps that are to be trained in full, however slow: no cap ends them. A core that others use,
/// and a link of 100 Mbit/s.
double budget_us(const WorkCell& cell) {
  constexpr double kSlowFlopsPerUs = 10e3;
  const TrainingSpec& spec = training_spec(cell);
  const double flops = spec.batch * facts_of(spec.model, spec.sequence).flops_per_sample();
  const double bytes = 2 * static_cast<double>(cell.size.count());
  return budgeted_worker_steps(spec, 1) *
         (waited_us(spec, flops / kSlowFlopsPerUs) + bytes / kSlowBytesPerUs);
}

/// Where rounds are compared with one process: weights and momentum of every worker go to all,
/// after each.
double states_us(const WorkCell& cell) {
  constexpr double kMostWorkers = 8;
  const double bytes = 2 * kMostWorkers * static_cast<double>(cell.size.count());
  return std::max(kLeastRounds, training_spec(cell).oracle) * bytes / kSlowBytesPerUs;
}

/// Samples that are taken whatever the cap, and those around them, each of which ranks may enter
/// late.
double late_us(const WorkCell& cell, const Protocol& protocol) {
  constexpr int kAround = 4;  // two of the warm-up, the last timed one and one to be checked
  const WorkSettings settings = work_settings_of(cell.knobs);
  return settings.late.count() * (settings.of(protocol).min_iterations + kAround);
}

}  // namespace

Micros stopped_limit() { return seconds_of_variable("DYNAMICCL_STOPPED_S", 30); }

Micros launch_timeout(const RunProtocol& protocol, const std::vector<WorkCell>& cells) {
  if (protocol.launch_timeout.count() > 0) return protocol.launch_timeout;
  // Warm-up, timed part, fresh data and checking of a cell each take about as long as the cap at
  // most, and so does each part of a trial; containers, connections and of training the model, its
  // profile and its cost tables come on top.
  constexpr double start_us = 30e6;
  constexpr double per_cell_us = 2e6;
  constexpr double per_training_us = 60e6;
  const double cap_us = protocol.cells.cell_time_cap.count();
  double timeout_us = start_us + protocol.connect_timeout.count();
  for (const WorkCell& cell : cells) {
    const bool trains = cell.collective == Collective::training;
    const double trial = trains && leaves_a_choice(training_spec(cell)) ? kTrialCaps : 0;
    timeout_us += (trains ? per_training_us : per_cell_us) + (3 + trial) * cap_us;
    timeout_us += trains ? budget_us(cell) + states_us(cell) : late_us(cell, protocol.cells);
  }
  return Micros(timeout_us);
}

RunConfig make_run_config(const PlannedGroup& group, const RunProtocol& protocol,
                          const std::string& launch_id, std::uint64_t seed,
                          const std::string& folder, const std::string& interface) {
  RunConfig config;
  config.launch_id = launch_id;
  config.backend = group.backend;
  config.architecture = group.architecture;
  config.ranks = group.ranks;
  config.seed = seed;
  config.output_dir = folder;
  if (needs_rendezvous(group.backend)) config.rendezvous_dir = folder + "/rendezvous";
  config.interface = interface;
  config.connect_timeout = protocol.connect_timeout;
  config.protocol = protocol.cells;
  config.cells = launch_cells(group, seed);
  return config;
}

namespace {

int slots_of(const LaunchShape& shape) {
  int slots = 0;
  for (const auto& host : shape.hosts) slots += host.slots;
  return slots;
}

/// What ranks on several machines need besides: the marks by which they are found there, and the
/// network they are to use.
void reach_over_nodes(LaunchRequest& request, const ClusterOptions& options) {
  const auto& launcher = request.shape.launcher_environment;
  for (const auto& [name, value] : rank_marks(launcher.at(kEnvironmentVariable), ""))
    request.environment[name] = value;
  if (options.interface.empty()) return;
  if (!request.mca.contains("btl_tcp_if_exclude"))
    request.mca.try_emplace("btl_tcp_if_include", options.interface);
  request.environment.try_emplace("NCCL_SOCKET_IFNAME", options.interface);
  // What has TCP alone would take the variable of the surroundings before the worker's setting.
  const auto& facts = backend_facts(request.backend);
  if (!facts.only_transport.empty())
    request.environment.try_emplace(std::string(facts.interface_variable), options.interface);
}

/// Ranks count the GPUs of their own node.
void count_gpus_by_node(const LaunchShape& shape, std::vector<int>& gpu_of_rank) {
  std::size_t first = 0;
  int next = 0;
  std::string node;
  for (const auto& host : shape.hosts) {
    const auto end = std::min(gpu_of_rank.size(), first + static_cast<std::size_t>(host.slots));
    // Containers of one node see the same GPUs.
    if (host.node.empty() || host.node != node) next = 0;
    node = host.node;
    for (std::size_t rank = first; rank < end; ++rank)
      if (gpu_of_rank[rank] >= 0) gpu_of_rank[rank] = next++;
    first = end;
  }
}

}  // namespace

std::vector<Command> make_commands(
    const PlannedGroup& group, const EnvironmentProfile& profile, const LaunchShape& shape,
    const LaunchSite& site, const std::string& run_json,
    std::function<std::vector<std::string>(int, const std::vector<std::string>&,
                                           const std::map<std::string, std::string>&)>
        wrap_rank) {
  LaunchRequest request;
  request.backend = group.backend;
  request.ranks = group.ranks;
  request.cores = shape.step_prefix.empty() && !site.cluster ? site.cores : slots_of(shape);
  const bool docker = profile.kind == EnvironmentKind::single_docker ||
                      profile.kind == EnvironmentKind::cross_docker;
  request.as_root = geteuid() == 0 || (docker && profile.launcher == LauncherPlace::inside);
  request.shape = shape;
  const std::string program =
      group.trains() ? trainer_program(group.backend) : std::string(worker_program(group.backend));
  request.worker = {fmt::format("{}/{}", site.worker_folder, program), run_json};
  request.program_folder = site.worker_folder;
  request.run_folder = site.run_folder;
  request.wrap_rank = std::move(wrap_rank);
  // An engine's containers begin with an environment of their own.
  if (const char* tunables = std::getenv(std::string(kTunablesVariable).c_str());
      tunables != nullptr && !docker)
    request.inherited_tunables = tunables;
  apply_settings(request, profile, group.knobs);
  // Without it Open MPI takes no algorithm from its caller; with it, and none said, it decides
  // itself.
  if (has_tuned_training(group) && is_host_mpi(group.backend) && backend_facts(group.backend).mca)
    request.mca.try_emplace("coll_tuned_use_dynamic_rules", "1");
  MachineDeclarations machine = site.machine;
  if (!profile.declared_aggregation.empty()) machine.aggregation = profile.declared_aggregation;
  if (const auto declared = declared_text(machine); !declared.empty() && has_tuned_training(group))
    request.environment[kDeclaredVariable] = declared;
  if (site.cluster) reach_over_nodes(request, site.cluster->options());
  if (run_json.starts_with(kRecordsScheme)) request.inherited = {kRecordsToken};
  return launcher_for(group.backend, shape).build(request);
}

namespace {

/// What ranks can only do through a folder that all of them see.
void require_no_folder(const std::vector<WorkCell>& cells) {
  for (const WorkCell& cell : cells)
    if (cell.collective == Collective::training && method_row(training_spec(cell).method).engine)
      throw Error(
          ErrorKind::environment,
          fmt::format("{} meets through files: it needs a folder of launches that all nodes "
                      "see (--out)",
                      cell.algorithm));
}

bool goes_by_aggregator(const WorkCell& cell) {
  const auto packing = cell.knobs.find("packing");
  return cell.algorithm == "aggregator" ||
         (packing != cell.knobs.end() && packing->second == name_of(Packing::aggregated));
}

/// Started for cells that go through one, which learn where it is: "ADDRESS,ADDRESS...:PORT/KEY".
std::shared_ptr<HeldCommand> start_aggregator(RunConfig& config, const LaunchSite& site,
                                              const std::string& folder) {
  std::shared_ptr<HeldCommand> aggregator;
  std::string place;
  for (WorkCell& cell : config.cells) {
    if (!goes_by_aggregator(cell)) continue;
    if (aggregator == nullptr) {
      std::random_device random;
      const std::string key = fmt::format("{:08x}{:08x}", random(), random());
      const std::string program = site.worker_folder + "/dynamiccl-aggregator";
      const std::vector<std::string> argv{program, std::to_string(config.ranks), key};
      aggregator = std::make_shared<HeldCommand>(argv, folder + "/aggregator.err");
      const auto port = aggregator->read_line("", std::chrono::seconds(10), nullptr);
      if (!port)
        throw Error(ErrorKind::environment,
                    fmt::format("{} did not start: {}build it, or measure without the algorithm "
                                "\"aggregator\"",
                                program, read_file(folder + "/aggregator.err").value_or("")));
      place = fmt::format("{}:{}/{}", join(own_addresses(), ","), *port, key);
    }
    cell.knobs["aggregator"] = place;
  }
  return aggregator;
}

/// The launch's secret goes into the launcher's environment, where only this user can read it.
void give_token(std::vector<Command>& commands, const std::string& token) {
  for (Command& command : commands) command.environment[kRecordsToken] = token;
}

/// A rank whose shell is on another machine outlives what has started it there. So its shell keeps
/// the connection's input open next to it and ends it when that closes, for whatever reason. By
/// this input comes the launch's secret too, as a remote shell hands on no variable.
/// @param token of the launch, "" = none
void hold_ranks(std::vector<Command>& commands, const std::string& token) {
  const std::string secret =
      token.empty() ? "" : fmt::format("IFS= read -r {0} <&3; export {0}; ", kRecordsToken);
  for (Command& command : commands) {
    auto& line = command.argv.back();
    line = login_shell_line(
        fmt::format("exec 3<&0; {}{} </dev/null 3<&- & rank=$!; (read -r gone <&3; kill -KILL "
                    "$rank) >/dev/null "
                    "2>&1 & watch=$!; wait $rank; code=$?; kill $watch; exit $code",
                    secret, line));
    command.input = token.empty() ? "" : token + "\n";
  }
}

}  // namespace

RunConfig replayed_config(const RunConfig& stored, const std::string& launch_id,
                          const std::string& folder, const std::string& interface) {
  RunConfig config = stored;
  config.launch_id = launch_id;
  config.output_dir = folder;
  if (!config.rendezvous_dir.empty()) config.rendezvous_dir = folder + "/rendezvous";
  config.interface = interface;
  return config;
}

PreparedLaunch prepare_launch(const PlannedGroup& group, const EnvironmentProfile& profile,
                              const Environment& environment, const LaunchSite& site,
                              const RunProtocol& protocol, std::uint64_t seed,
                              const RunConfig* replayed, const CadenceBook* cadences) {
  PreparedLaunch launch;
  launch.start.uuid = random_uuid();
  launch.start.group_id = group.id;
  launch.folder = fmt::format("{}/{}", site.run_folder, launch.start.uuid);
  const LaunchShape shape = environment.shape();
  if (replayed != nullptr) {
    launch.config = replayed_config(*replayed, launch.start.uuid, launch.folder, shape.interface);
  } else {
    launch.config =
        make_run_config(group, protocol, launch.start.uuid, seed, launch.folder, shape.interface);
    launch.config.gpu_of_rank = gpus_of_ranks(group, profile, launch.config.server_rank);
    if (site.cluster) count_gpus_by_node(shape, launch.config.gpu_of_rank);
    if (cadences != nullptr) cadences->apply(group, launch.config.cells);
  }
  std::error_code error;
  fs::create_directories(
      launch.config.rendezvous_dir.empty() ? launch.folder : launch.config.rendezvous_dir, error);
  if (error)
    throw Error(
        ErrorKind::environment,
        fmt::format("{}: the launch's folder cannot be made: {}; it lies next to the database: "
                    "name one where this user may write with --db, or another place for "
                    "launches with --out where there is such an option",
                    launch.folder, error.message()));
  if (profile.simulated()) only_simulated_samples(launch.config);
  bring_tables(launch.config.cells, launch.folder);
  launch.aggregator = start_aggregator(launch.config, site, launch.folder);
  std::string run_json = launch.folder + "/run.json";
  launch.start.run_json = to_json(launch.config);
  write_file(run_json, launch.start.run_json);
  if (site.cluster && site.cluster->records_over_tcp()) {
    require_no_folder(launch.config.cells);
    launch.records = std::make_shared<RecordServer>(
        RecordServer::Launch{launch.folder, launch.start.run_json, group.ranks});
    run_json = launch.records->place();
  }
  const auto wrap_rank = [&](int rank, const std::vector<std::string>& command,
                             const std::map<std::string, std::string>& env) {
    return environment.wrap_rank(rank, command, env);
  };
  launch.commands = profile.simulated()
                        ? simulated_commands(launch.config, profile)
                        : make_commands(group, profile, shape, site, run_json, wrap_rank);
  const std::string token = launch.records == nullptr ? "" : launch.records->token();
  if (!token.empty()) give_token(launch.commands, token);
  if (site.cluster && shape.step_prefix.empty() && needs_rendezvous(group.backend))
    hold_ranks(launch.commands, token);
  launch.start.argv = recorded_argv(launch.commands);
  launch.start.environment_json = recorded_environment(launch.commands);
  auto provenance = environment.provenance();
  if (profile.simulated()) provenance["simulated"] = profile.description;
  launch.start.container_json = provenance.dump();
  return launch;
}

namespace {

/// Over the nodes in turn, by the experiment's word, or by Open MPI's parameter, which goes before.
bool deals_ranks(const std::vector<Command>& commands, const LaunchShape& shape) {
  constexpr std::array kWords{"--mca", "rmaps_base_ranking_policy"};
  for (const Command& command : commands) {
    const auto& argv = command.argv;
    const auto at = std::search(argv.begin(), argv.end(), kWords.begin(), kWords.end());
    if (argv.end() - at > 2) return at[2] == "node";
  }
  return shape.dealt;
}

RankHosts hosts_of(const Environment& environment, const LaunchSite& site,
                   const std::vector<Command>& commands) {
  RankHosts hosts;
  hosts.declared = site.machine;
  if (!site.cluster) {
    hosts.facts = {site.host};
    return hosts;
  }
  hosts.facts = environment.host_facts();
  std::vector<ClusterNode> slots;
  std::set<std::string> nodes;
  for (const auto& host : environment.shape().hosts) {
    slots.push_back({host.node.empty() ? host.name : host.node, host.slots});
    nodes.insert(slots.back().name);
  }
  if (deals_ranks(commands, environment.shape())) slots = dealt_in_turn(std::move(slots));
  hosts.count = static_cast<int>(nodes.size());
  const auto slurm = environment.provenance().value(nlohmann::json::json_pointer("/cluster/slurm"),
                                                    nlohmann::json::object());
  place_hosts(slots, slurm.value("topology", ""), hosts);
  if (hosts.places.empty()) hosts.places = site.cluster->measured_places();
  return hosts;
}

/// Whatever is known of how the processes ended, put before what their records lack.
struct BadEnd {
  std::string how;
  OutOfMemoryCounts memory_before;
  std::map<unsigned, std::string> interfaces_before;
  bool is_own_network = false;  ///< ranks start in this program's
};

/// By itself, before any rank had recorded anything.
bool ended_as_it_started(const ProcessOutcome& outcome, const std::vector<RecordFile>& records) {
  const bool nobody_came = std::all_of(records.begin(), records.end(),
                                       [](const auto& file) { return file.records.empty(); });
  const auto* failure = outcome.first_failure();
  return nobody_came && failure != nullptr && failure->start_error.empty() && !outcome.timed_out &&
         outcome.interrupted_by == 0 && outcome.stopped == 0 && !outcome.deserted &&
         signal_behind_launcher(outcome) == 0;
}

void explain_end(const BadEnd& end, const LaunchSite& site, const RunConfig& config,
                 const ProcessOutcome& outcome, const std::vector<RecordFile>& records,
                 std::vector<std::string>& problems) {
  const auto ranks = unfinished_ranks(config, records);
  problems.insert(problems.begin(), ranks.begin(), ranks.end());
  const auto put_first = [&](std::string clause) {
    if (!clause.empty()) problems.insert(problems.begin(), std::move(clause));
  };
  // This machine's kernel counts nothing of other nodes.
  if (site.cluster == nullptr)
    put_first(out_of_memory_clause(end.memory_before, out_of_memory_counts()));
  const auto said = stderr_of(outcome);
  put_first(refused_login_clause(said));
  put_first(library_words_clause(said));
  if (ended_as_it_started(outcome, records)) {
    // Of a container's network, or a node's, nothing is known here.
    auto after = end.interfaces_before;
    if (end.is_own_network) after = interfaces_by_index();
    put_first(vanished_interface_clause({config.backend, said, end.interfaces_before, after,
                                         end.is_own_network ? default_interface() : "NAME"}));
  }
  put_first(end.how);
}

ProcessOptions process_options(const PreparedLaunch& launch, const Environment& environment,
                               const RunProtocol& protocol, const LaunchListeners& listeners) {
  ProcessOptions options;
  options.timeout = launch_timeout(protocol, launch.config.cells);
  options.stopped_limit = stopped_limit();
  options.marker = launch.start.uuid;
  options.on_stderr = listeners.on_stderr;
  options.on_look = listeners.on_look;
  options.kill_elsewhere = [&environment] { environment.end_ranks(); };
  // Without it some ranks would notice after seconds, and others wait for those.
  if (launch.aggregator != nullptr)
    options.enough = [&launch] { return launch.aggregator->is_silent(); };
  return options;
}

}  // namespace

FinishedLaunch run_launch(const PreparedLaunch& launch, const EnvironmentProfile& profile,
                          const Environment& environment, const LaunchSite& site,
                          const RunProtocol& protocol, const LaunchListeners& listeners) {
  auto options = process_options(launch, environment, protocol, listeners);
  const bool simulated = profile.simulated();
  if (simulated) options.timeout = simulated_timeout(launch.config.cells.size());
  BadEnd end{"", out_of_memory_counts(), interfaces_by_index(),
             site.cluster == nullptr && profile.kind == EnvironmentKind::bare_metal};
  const auto outcome = site.start(launch.commands, options);

  FinishedLaunch finished;
  std::vector<std::string> problems;
  if (launch.records != nullptr)
    problems =
        launch.records->finish(outcome.interrupted_by != 0 ? kUnwantedRecords : kLateRecords);
  if (simulated) write_simulated_records(launch.config);
  const auto noise = noise_between(launch.noise_before, probe_noise());
  finished.end.noise_json = noise.dump();
  finished.records = read_launch_records(launch.config, problems);
  end.how = describe_end(outcome, options.timeout, finished.records.size());
  // What else this machine does changes nothing in a simulation.
  const auto flags = simulated
                         ? std::vector<std::string>()
                         : noise_flags(launch.noise_before, noise, noise_of_ranks(finished.records),
                                       protocol.noise, site.cores);
  finished.end.noise_flags_json = nlohmann::json(flags).dump();
  const auto check = check_records(launch.config, finished.records);
  finished.failed_cells = check.failed_cells;
  problems.insert(problems.end(), check.problems.begin(), check.problems.end());
  if (!simulated) {
    const auto observed =
        observe(profile, launch.config, hosts_of(environment, site, launch.commands),
                finished.records, finished.end);
    problems.insert(problems.end(), observed.begin(), observed.end());
  }
  // How the processes ended explains missing records, not the other way round.
  if (!end.how.empty()) explain_end(end, site, launch.config, outcome, finished.records, problems);
  finished.end.reason = join(problems, "; ");
  finished.end.status = status_of(outcome, finished.end.reason);
  finished.interrupted_by = outcome.interrupted_by;
  finished.end.duration_s = outcome.duration.seconds();
  finished.end.stderr_tail = stderr_of(outcome);
  if (const auto* failure = outcome.first_failure()) {
    finished.end.exit_code = failure->exit_code;
    finished.end.signal = signal_behind_launcher(outcome);
  }
  // Of ranks that are stuck too: what they said last may be why.
  const bool ended_badly = outcome.timed_out || (finished.end.status == LaunchStatus::failed &&
                                                 outcome.first_failure() != nullptr);
  if (ended_badly && !trim(finished.end.stderr_tail).empty())
    finished.end.reason += "\n    " + last_lines(finished.end.stderr_tail, 6);
  return finished;
}

void remove_launch_folder(const PreparedLaunch& launch) {
  std::error_code ignored;
  fs::remove_all(launch.folder, ignored);
}

}  // namespace dynamiccl
