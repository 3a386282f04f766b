#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "containers/image.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/printable_json.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/doctor/examine.hpp"
#include "orchestrator/doctor/job/job_logs.hpp"
#include "orchestrator/doctor/job/job_on_hosts.hpp"
#include "orchestrator/doctor/job/look_at_job.hpp"
#include "orchestrator/doctor/least.hpp"
#include "orchestrator/doctor/output.hpp"
#include "orchestrator/doctor/preflight.hpp"
#include "orchestrator/experiment/cluster_reader.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

constexpr std::array kMainEnvironments{"bare-metal", "singularity", "single-docker",
                                       "cross-docker"};
constexpr int kMinProofLaunches = 3;

struct DoctorArguments {
  std::vector<std::string> environments;
  std::vector<std::string> named;     ///< by --environment
  std::vector<std::string> files;     ///< profiles of --profile
  std::vector<std::string> backends;  ///< empty = the host's own, and NCCL where there are GPUs
  std::vector<std::string> causes;    ///< to be proved; empty = all
  std::vector<std::string> profile_folders;
  std::string machine;
  std::string machine_file;
  std::vector<const CLI::Option*> of_proofs;       ///< mean nothing without --prove
  const CLI::Option* launches_given = nullptr;     ///< of --prove, and of --least
  std::vector<const CLI::Option*> of_launches;     ///< mean nothing with --machine
  std::vector<const CLI::Option*> of_nodes;        ///< the same
  std::vector<const CLI::Option*> of_one_machine;  ///< mean nothing with nodes
  std::vector<std::string> jobs;  ///< process ids, containers, Slurm's jobs: of one job
  bool looks = false;             ///< for who joins what hosts have seen
  std::string hosts;
  std::string remote_shell;
  std::string slurm;
  int nodes = 0;
  int ranks = 2;
  int launches = 6;
  bool prove = false;
  bool least = false;
};

/// In lines of the terminal, but for fixes, which stay whole to be copied.
void print_lines(const std::string& text) {
  constexpr std::string_view kFix = "fix: ";
  const auto columns = stdout_columns();
  std::vector<std::string> lines = split(text, '\n');
  for (auto& line : lines)
    if (!trim(line).starts_with(kFix)) line = broken_text(line, columns);
  fmt::print("{}", join(lines, "\n"));
}

std::string read_text(const std::string& path) {
  try {
    return read_input_file(path);
  } catch (const Error& error) {
    throw Error(ErrorKind::input,
                fmt::format("{}; give --profile a profile's TOML file, --machine what `dynamiccl "
                            "doctor --json` printed there",
                            error.what()));
  }
}

/// The profiles to look into, the main ones when none is named.
std::vector<EnvironmentProfile> chosen_profiles(const DoctorArguments& arguments) {
  std::vector<std::string> notes;
  const auto known = load_profiles(profile_folders(arguments.profile_folders), &notes);
  auto names = arguments.environments;
  names.insert(names.end(), arguments.named.begin(), arguments.named.end());
  if (names.empty() && arguments.files.empty())
    names.assign(kMainEnvironments.begin(), kMainEnvironments.end());
  std::vector<EnvironmentProfile> chosen;
  for (const auto& name : names) {
    find_profile(known, name);
    chosen.push_back(profile_for_user(known, name, only_user_namespaces()));
  }
  for (const auto& file : arguments.files)
    chosen.push_back(parse_profile(read_text(file), file, known, &notes));
  print_notes(notes);
  for (const auto& profile : chosen)
    if (profile.simulated())
      throw Error(
          ErrorKind::input,
          fmt::format("doctor: {}: simulated ranks have nothing to examine; `dynamiccl run` "
                      "simulates them",
                      profile.name));
  return chosen;
}

std::vector<Backend> chosen_backends(const DoctorArguments& arguments) {
  std::vector<Backend> backends;
  if (arguments.backends.empty()) {
    for (const BackendFacts& facts : kBackendFacts)
      if (!facts.on_gpu || (facts.gpu_per_rank && gpu_count() > 1))
        backends.push_back(facts.backend);
  }
  for (const auto& name : arguments.backends) {
    const auto backend = find_named<Backend>(name);
    if (!backend)
      throw Error(ErrorKind::input, fmt::format("unknown backend \"{}\"; {}", name,
                                                suggestion(name, all_names<Backend>())));
    backends.push_back(*backend);
  }
  return backends;
}

void check_causes(const std::vector<std::string>& causes) {
  std::vector<std::string> known;
  for (const Cause& cause : all_causes()) known.emplace_back(cause.id);
  for (const auto& cause : causes)
    if (std::find(known.begin(), known.end(), cause) == known.end())
      throw Error(ErrorKind::input,
                  fmt::format("unknown cause \"{}\"; {}", cause, suggestion(cause, known)));
}

bool wanted(const DoctorArguments& arguments, const Finding& finding) {
  return arguments.causes.empty() || std::find(arguments.causes.begin(), arguments.causes.end(),
                                               finding.cause->id) != arguments.causes.end();
}

/// Facts of another machine: what dynamiccl-probe prints, or `doctor --json` from there.
nlohmann::json read_machine(const std::string& path) {
  auto facts = json_or_discarded(read_text(path));
  if (facts.is_object() && facts.contains("host")) facts = facts["host"];
  if (!facts.is_object() || !facts.value("gpu", nlohmann::json()).is_object())
    throw Error(ErrorKind::input,
                fmt::format("{}: no facts of a machine: expected what dynamiccl-probe or "
                            "`dynamiccl doctor --json` prints there",
                            path));
  return facts;
}

/// Nothing is started: what the profiles would do on the machine that the facts describe.
int predict(const DoctorArguments& arguments, const Shared& shared) {
  const auto machine = read_machine(arguments.machine);
  nlohmann::json all = nlohmann::json::array();
  bool obstacles = false;
  if (!shared.json) print_lines(fmt::format("{}: {}\n", arguments.machine, machine_line(machine)));
  for (const auto& profile : chosen_profiles(arguments)) {
    const auto prediction = predict_gpu_path(profile, machine, arguments.ranks);
    obstacles = obstacles || !prediction.obstacles.empty();
    if (shared.json)
      all.push_back({{"environment", profile.name}, {"gpu_prediction", to_json(prediction)}});
    else
      print_lines(to_text(profile, prediction));
  }
  if (shared.json)
    fmt::print("{}\n", nlohmann::json{{"machine", machine}, {"environments", all}}.dump(1));
  return obstacles ? exit_code::kDoctor : exit_code::kFine;
}

MachineDeclarations declared_machine(const DoctorArguments& arguments) {
  if (arguments.machine_file.empty()) return {};
  return parse_declarations(read_input_file(arguments.machine_file), arguments.machine_file);
}

class Doctor {
 public:
  Doctor(const DoctorArguments& arguments, const Shared& shared)
      : arguments_(arguments), shared_(shared), console_(shared.verbosity()) {}

  int run() {
    const auto profiles = chosen_profiles(arguments_);
    const auto backends = chosen_backends(arguments_);
    make_db_folder(shared_.db);
    site_ = launch_site(shared_.db, "");
    site_.machine = declared_machine(arguments_);
    if (!shared_.json) print_lines(fmt::format("this machine: {}\n", machine_line(site_.host)));
    nlohmann::json all = nlohmann::json::array();
    for (const auto& profile : profiles) {
      if (interrupt_signal() != 0) return 128 + interrupt_signal();
      const auto diagnosis = diagnose(profile, backends);
      if (shared_.json)
        all.push_back(to_json(diagnosis));
      else
        print_lines(to_text(diagnosis));
      std::fflush(stdout);  // in order with the messages on stderr
    }
    if (shared_.json)
      fmt::print("{}\n", nlohmann::json{{"host", site_.host}, {"environments", all}}.dump(1));
    if (interrupt_signal() != 0) return 128 + interrupt_signal();
    return found_ ? exit_code::kDoctor : exit_code::kFine;
  }

 private:
  Diagnosis diagnose(const EnvironmentProfile& profile, const std::vector<Backend>& backends) {
    console_.note(fmt::format("looking into {}", profile.name));
    const auto can = inspect_machine({{profile.name, profile}}, site_.worker_folder);
    Diagnosis diagnosis;
    diagnosis.symptoms = examine(profile, arguments_.ranks, backends, site_, can);
    diagnosis.gpu = predict_gpu_path(profile, site_.host, arguments_.ranks);
    const bool named = !arguments_.environments.empty() || !arguments_.named.empty();
    if (!diagnosis.symptoms.unavailable.empty()) {
      // Of the main environments one may be missing here; one that was asked for may not.
      found_ = found_ || named || !arguments_.files.empty();
      return diagnosis;
    }
    diagnosis.findings = find_causes(diagnosis.symptoms);
    if (arguments_.prove) prove_all(diagnosis);
    const auto& looks = diagnosis.symptoms.looks;
    const bool failed = std::any_of(looks.begin(), looks.end(),
                                    [](const auto& look) { return !look.failure.empty(); });
    // As with environments: of the usual backends one may be missing here, a named one may not.
    const bool missing = !arguments_.backends.empty() &&
                         std::any_of(looks.begin(), looks.end(),
                                     [](const auto& look) { return !look.impossible.empty(); });
    found_ = found_ || failed || missing || !diagnosis.symptoms.any_ran() || has_cause(diagnosis) ||
             !diagnosis.symptoms.problems.empty();
    return diagnosis;
  }

  static bool has_cause(const Diagnosis& diagnosis) {
    return std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                       [](const Finding& finding) {
                         return !finding.cause->doubtful && !finding.cause->advice;
                       }) ||
           std::any_of(diagnosis.proofs.begin(), diagnosis.proofs.end(),
                       [](const ProofResult& proof) { return proof.verdict == Verdict::faster; });
  }

  void prove_all(Diagnosis& diagnosis) {
    const ProofOptions options{shared_.db, shared_.argv, arguments_.launches};
    for (const auto& finding : diagnosis.findings) {
      if (interrupt_signal() != 0) return;
      if (!wanted(arguments_, finding)) {
        ProofResult skipped;
        skipped.cause = finding.cause->id;
        skipped.impossible = "not asked for";
        diagnosis.proofs.push_back(skipped);
        continue;
      }
      console_.note(
          fmt::format("proving {} in {}", finding.cause->id, diagnosis.symptoms.profile.name));
      diagnosis.proofs.push_back(prove(diagnosis.symptoms, finding, options, console_));
    }
  }

  const DoctorArguments& arguments_;
  const Shared& shared_;
  Console console_;
  LaunchSite site_;
  bool found_ = false;
};

void refuse_given(const std::vector<const CLI::Option*>& options, const char* why) {
  for (const auto* option : options)
    if (option->count() > 0)
      throw Error(ErrorKind::input, fmt::format("doctor: {} {}", option->get_name(), why));
}

/// The nodes to look at; nullopt: this machine's environments are.
std::optional<ClusterOptions> chosen_nodes(const DoctorArguments& arguments) {
  if (arguments.hosts.empty() && arguments.slurm.empty()) {
    if (arguments.nodes > 0)
      throw Error(ErrorKind::input, "doctor: --nodes goes with --hosts or --slurm");
    if (!arguments.remote_shell.empty())
      throw Error(ErrorKind::input, "doctor: --remote-shell goes with --hosts");
    return std::nullopt;
  }
  if (!arguments.hosts.empty() && !arguments.slurm.empty())
    throw Error(ErrorKind::input, "doctor: --hosts and --slurm exclude each other: Slurm chooses");
  refuse_given(arguments.of_one_machine,
               "looks into this machine, and --hosts or --slurm at nodes");
  ClusterOptions options;
  options.nodes = arguments.nodes;
  if (!arguments.hosts.empty()) {
    options.hosts = hosts_of({arguments.hosts});
    if (!arguments.remote_shell.empty())
      options.remote_shell = remote_shell_of(arguments.remote_shell);
    if (options.nodes > 0 && static_cast<std::size_t>(options.nodes) < options.hosts.size())
      options.hosts.resize(static_cast<std::size_t>(options.nodes));
  } else {
    if (!arguments.remote_shell.empty())
      throw Error(ErrorKind::input, "doctor: --remote-shell goes with --hosts");
    const auto start = find_named<ClusterStart>(arguments.slurm);
    if (!start || *start == ClusterStart::ssh)
      throw Error(ErrorKind::input, "doctor: --slurm is srun or mpirun");
    options.start = *start;
    if (options.nodes == 0 && !surrounding_allocation())
      throw Error(ErrorKind::input, "doctor: of how many nodes is Slurm asked? Add --nodes N");
  }
  return options;
}

int look_at_cluster(const DoctorArguments& arguments, const ClusterOptions& options,
                    const Shared& shared) {
  if (arguments.backends.size() > 1)
    throw Error(ErrorKind::input, "doctor: one --backend carries the pairs of nodes");
  std::optional<Backend> backend;
  if (!arguments.backends.empty()) backend = chosen_backends(arguments).front();
  const auto cluster = std::make_shared<ClusterSession>(options, 1);
  if (cluster->nodes().size() < 2)
    throw Error(ErrorKind::input, "doctor: one node has nobody to be compared with; name two");
  make_db_folder(shared.db);
  Console console(shared.verbosity());
  LaunchSite site = launch_site(shared.db, "");
  site.machine = declared_machine(arguments);
  const auto preflight = look_at_nodes(cluster, std::move(site), backend, console);
  cluster->release();
  if (shared.json)
    fmt::print("{}\n", to_json(preflight).dump(1));
  else
    print_lines(to_text(preflight));
  if (interrupt_signal() != 0) return 128 + interrupt_signal();
  return preflight.found() ? exit_code::kDoctor : exit_code::kFine;
}

/// Texts of others, so without what would steer a terminal.
template <class Look>
int say_of_job(const Look& look, const Shared& shared) {
  if (shared.json)
    fmt::print("{}\n", printable_json(to_json(look).dump(
                           1, ' ', false, nlohmann::json::error_handler_t::replace)));
  else
    print_lines(printable(to_text(look)));
  if (interrupt_signal() != 0) return 128 + interrupt_signal();
  switch (look.verdict.state) {
    case JobState::hung:
    case JobState::slow:
      return exit_code::kDoctor;
    case JobState::unknown:
      return exit_code::kUnclear;
    default:
      return exit_code::kFine;
  }
}

/// A job that runs is looked at from outside, or what it has left is read: nothing is started.
int look_into_job(const DoctorArguments& arguments, const Shared& shared) {
  for (const auto& options : {arguments.of_one_machine, arguments.of_launches, arguments.of_proofs})
    refuse_given(options, "does not go with --job, which looks at a job as it runs");
  const auto hosts = chosen_nodes(arguments);
  if (hosts && hosts->slurm())
    throw Error(ErrorKind::input,
                "doctor: --slurm and --job exclude each other: name the nodes, --hosts NODE,NODE "
                "--job slurm:JOB (`squeue` says on which a job is)");
  if (!arguments.machine.empty())
    throw Error(ErrorKind::input, "doctor: --machine and --job exclude each other");
  const auto logs = std::count_if(arguments.jobs.begin(), arguments.jobs.end(), names_logs);
  if (logs > 0 && static_cast<std::size_t>(logs) < arguments.jobs.size())
    throw Error(ErrorKind::input,
                "doctor: --job names files and processes: a job that runs, or what one has left");
  if (logs > 0 && hosts)
    throw Error(ErrorKind::input,
                "doctor: --hosts looks at a job that runs, and --job names files");
  // Reading leaves nothing, so that a signal may end it at once.
  if (logs > 0) return say_of_job(look_at_logs(arguments.jobs), shared);
  const InterruptGuard guard;
  const auto interrupted = +[] { return interrupt_signal() != 0; };
  if (hosts) return say_of_job(look_at_hosts(arguments.jobs, *hosts, interrupted), shared);
  LookOptions options;
  options.interrupted = interrupted;
  options.of_several = arguments.looks;
  const auto look = look_at_job(arguments.jobs, options);
  if (!arguments.looks) return say_of_job(look, shared);
  auto told = to_json(look);
  told["job"] = looks_json(look.job);
  fmt::print("{}\n", told.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  return interrupt_signal() != 0 ? 128 + interrupt_signal() : exit_code::kFine;
}

void refuse_beside_least(const DoctorArguments& arguments) {
  if (arguments.prove || !arguments.causes.empty())
    throw Error(ErrorKind::input,
                "doctor: --least looks for flags that are not needed, and --prove for what slows: "
                "one at a time");
  if (!arguments.hosts.empty() || !arguments.slurm.empty())
    throw Error(ErrorKind::input, "doctor: --least is for containers of this machine");
  if (arguments.environments.empty() && arguments.named.empty() && arguments.files.empty())
    throw Error(ErrorKind::input,
                "doctor: of which profile is --least asked? As in `dynamiccl doctor --least "
                "single-docker` or --profile FILE");
}

/// Which of their flags the profiles' containers need, a search for each backend.
int look_for_least(const DoctorArguments& arguments, const Shared& shared) {
  refuse_beside_least(arguments);
  LeastOptions options;
  if (arguments.launches_given->count() > 0) options.launches = arguments.launches;
  make_db_folder(shared.db);
  auto site = launch_site(shared.db, "");
  site.machine = declared_machine(arguments);
  Console console(shared.verbosity());
  nlohmann::json all = nlohmann::json::array();
  bool known = true;
  for (const auto& profile : chosen_profiles(arguments)) {
    for (const Backend backend : chosen_backends(arguments)) {
      console.note(fmt::format("{}, {}: which flags are needed", profile.name, name_of(backend)));
      const auto result = find_least(profile, arguments.ranks, backend, site, options, console);
      if (interrupt_signal() != 0) return 128 + interrupt_signal();
      known = known && result.known();
      if (shared.json)
        all.push_back(to_json(result));
      else
        print_lines(to_text(result));
      std::fflush(stdout);  // in order with the messages on stderr
    }
  }
  if (shared.json) fmt::print("{}\n", nlohmann::json{{"host", site.host}, {"least", all}}.dump(1));
  return known ? exit_code::kFine : exit_code::kUnclear;
}

int run_doctor(const DoctorArguments& arguments, const Shared& shared) {
  check_causes(arguments.causes);
  if (!arguments.jobs.empty()) return look_into_job(arguments, shared);
  if (!arguments.prove && !arguments.least)
    refuse_given(arguments.of_proofs, "is for the proof of a cause: it goes with --prove");
  for (const auto& options : {arguments.of_launches, arguments.of_nodes})
    if (!arguments.machine.empty())
      refuse_given(options, "starts something, and --machine starts nothing");
  if (!arguments.machine.empty()) return predict(arguments, shared);
  const InterruptGuard guard;
  if (arguments.least) return look_for_least(arguments, shared);
  if (const auto nodes = chosen_nodes(arguments)) return look_at_cluster(arguments, *nodes, shared);
  return Doctor(arguments, shared).run();
}

/// This machine's environments, and what is to be found out of them.
void add_environment_options(CLI::App& verb, DoctorArguments& arguments) {
  arguments.of_one_machine = {
      verb.add_option("ENVIRONMENT", arguments.environments,
                      "profiles to look into (the four main ones)"),
      verb.add_option("--environment", arguments.named, "the same as an option"),
      verb.add_option("--profile", arguments.files, "look into the profile in this TOML file")
          ->take_all()
          ->allow_extra_args(false)};
  verb.add_option("--profiles", arguments.profile_folders,
                  "folder with further environment profiles")
      ->take_all()
      ->allow_extra_args(false);
  const auto* backend =
      verb.add_option("--backend", arguments.backends,
                      "backends to look at (openmpi, mpich, gloo; nccl where there are GPUs)");
  arguments.of_one_machine.push_back(
      verb.add_option("--ranks", arguments.ranks, "ranks of each launch that looks (2)")
          ->check(CLI::Range(1, 256)));
  const auto* prove =
      verb.add_flag("--prove", arguments.prove,
                    "measure each cause before and after its fix, in alternated launches of one "
                    "stored run");
  const auto* least =
      verb.add_flag("--least", arguments.least,
                    "find the flags of the profile (capabilities, seccomp, namespaces, /dev/shm, "
                    "mounts) without which its containers lose their transport or speed, by "
                    "launches that leave flags out");
  arguments.of_launches = {backend, prove, least};
  arguments.of_one_machine.push_back(prove);
  arguments.launches_given =
      verb.add_option(
              "--launches", arguments.launches,
              "with --prove: launches of each side of a proof (6); with --least: at most so "
              "many for each library (25)")
          ->default_str("")
          ->check(CLI::Range(kMinProofLaunches, 1000));
  arguments.of_proofs = {
      verb.add_option("--cause", arguments.causes, "with --prove: only these causes"),
      arguments.launches_given};
}

void add_node_options(CLI::App& verb, DoctorArguments& arguments) {
  for (const auto* option :
       {verb.add_option("--hosts", arguments.hosts,
                        "look at these machines instead, in pairs: which node is slow or cannot be "
                        "reached ('node1,node2,node3', or a file of them)")
            ->check(CLI::Validator(
                [](const std::string& text) {
                  return std::string(text.empty() ? "no host is named; leave --hosts out to look "
                                                    "into this machine"
                                                  : "");
                },
                "")),
        verb.add_option("--remote-shell", arguments.remote_shell,
                        "program called in ssh's place, as PROGRAM HOST COMMAND..."),
        verb.add_flag("--slurm{srun}", arguments.slurm,
                      "the same with nodes of Slurm: --slurm (job steps) or --slurm=mpirun")})
    arguments.of_nodes.push_back(option);
  verb.add_option("--nodes", arguments.nodes, "how many nodes of Slurm; of --hosts the first ones")
      ->check(CLI::PositiveNumber);
}

void add_options(CLI::App& verb, DoctorArguments& arguments) {
  add_environment_options(verb, arguments);
  add_node_options(verb, arguments);
  verb.add_option("--machine-file", arguments.machine_file,
                  "declarations of topology, deployment and in-network aggregation (TOML)");
  verb.add_option(
          "--job", arguments.jobs,
          "look at a job as it runs, from outside, for some 11 s: which rank hangs or is "
          "slow, and why (a process id of its launcher or of a rank, a container, "
          "slurm:JOB, VARIABLE=VALUE of its ranks; several are one job; with --hosts on all "
          "of these, HOST:NAME on one); or read what it has left: files or a folder of "
          "NCCL's log, PyTorch's flight recorder, ncclras")
      ->take_all();
  verb.add_flag("--looks", arguments.looks)->group("");  // of this program's own, see job_on_hosts
  verb.add_option("--machine", arguments.machine,
                  "start nothing: say what the profiles would do on the machine whose facts this "
                  "file holds (dynamiccl-probe, doctor --json)");
}

}  // namespace

void add_doctor_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "doctor",
      "detect what this machine and its environments really are, what slows them and "
      "what fixes it");
  auto arguments = std::make_shared<DoctorArguments>();
  add_options(*verb, *arguments);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl doctor\n"
      "  dynamiccl doctor single-docker-no-cma --prove\n"
      "  dynamiccl doctor --profile mine.toml --prove --launches 10 --json\n"
      "  dynamiccl doctor --least cross-docker-pod --backend mpich      flags that it "
      "needs\n"
      "  dynamiccl doctor --hosts node1,node2,node3,node4      which node is to be drained\n"
      "  dynamiccl doctor --slurm --nodes 8\n"
      "  dynamiccl doctor --job $(pgrep -n mpirun)      which rank hangs or is slow\n"
      "  dynamiccl doctor --job /tmp/traces      the same from logs and dumps\n"
      "  dynamiccl doctor cross-docker cross-docker-shared --ranks 4 --machine gpu-node.json\n"
      "Exit codes: 0 nothing found but doubts, 4 a cause of slowness, a failed launch, a broken\n"
      "promise, an environment in which no backend ran, or a named environment or backend that\n"
      "cannot run; of --job 4 a hung or slow job, 5 when it is not known; of --least 0, 5 when it\n"
      "is not known.");
  verb->callback([arguments, &shared] { shared.exit_code = run_doctor(*arguments, shared); });
}

}  // namespace dynamiccl
