#include "orchestrator/cli/verbs/experiment_arguments.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <set>

#include "containers/command.hpp"
#include "containers/image.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/cli/verbs/started_as.hpp"
#include "orchestrator/launch/group_commands.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/machine.hpp"
#include "profiles/machine_model_file.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {

void ExperimentArguments::add_to(CLI::App& verb, bool required) {
  verb.add_option("FILE", file, "experiment file (TOML)")->required(required);
  verb.add_option("--set", overrides, "KEY=VALUE replaces a key of FILE: protocol.launches=10")
      ->take_all()
      ->allow_extra_args(false);
  verb.add_option("--only", only,
                  "keep the cells for which this holds: 'backend == gloo and size >= 1MiB'")
      ->check([](const std::string& text) -> std::string {
        if (!trim(text).empty()) return "";
        return "the condition is empty; leave --only out to keep all cells";
      });
  verb.add_option("--hosts", hosts,
                  "start the ranks on these machines by ssh: 'node1:4,node2:4', or a file of them")
      ->check([](const std::string& text) -> std::string {
        if (!trim(text).empty()) return "";
        return "no host is named; leave --hosts out to stay on this machine";
      });
  verb.add_option("--remote-shell", remote_shell,
                  "program called in ssh's place, as PROGRAM HOST COMMAND...");
  verb.add_flag("--slurm{srun}", slurm,
                "start the ranks through Slurm: --slurm (job steps) or --slurm=mpirun");
  verb.add_option("--nodes", nodes, "how many nodes; all of the hosts or the allocation")
      ->check(CLI::PositiveNumber);
  verb.add_option("--machine-file", machine_file,
                  "declarations of topology, deployment and in-network aggregation (TOML)");
  verb.add_option("--profiles", profile_folders, "folder with further environment profiles")
      ->take_all()
      ->allow_extra_args(false);
}

std::vector<std::string> ExperimentArguments::words() const {
  std::vector<std::string> words{file};
  for (const auto& text : overrides) words.insert(words.end(), {"--set", text});
  if (!only.empty()) words.insert(words.end(), {"--only", only});
  if (!hosts.empty()) words.insert(words.end(), {"--hosts", hosts});
  if (!remote_shell.empty()) words.insert(words.end(), {"--remote-shell", remote_shell});
  if (!slurm.empty()) words.push_back("--slurm=" + slurm);
  if (nodes > 0) words.insert(words.end(), {"--nodes", std::to_string(nodes)});
  if (!machine_file.empty()) words.insert(words.end(), {"--machine-file", machine_file});
  for (const auto& folder : profile_folders) words.insert(words.end(), {"--profiles", folder});
  return words;
}

std::vector<std::string> all_overrides(const ExperimentArguments& arguments) {
  std::vector<std::string> all = arguments.overrides;
  if (!arguments.hosts.empty())
    all.push_back(fmt::format("cluster.hosts={}", nlohmann::json(arguments.hosts).dump()));
  if (!arguments.remote_shell.empty())
    all.push_back(
        fmt::format("cluster.remote_shell={}", nlohmann::json(arguments.remote_shell).dump()));
  if (!arguments.slurm.empty()) all.push_back(fmt::format("cluster.slurm=\"{}\"", arguments.slurm));
  if (arguments.nodes > 0) all.push_back(fmt::format("cluster.nodes={}", arguments.nodes));
  if (!arguments.machine_file.empty())
    all.push_back(fmt::format("machine.file={}", nlohmann::json(arguments.machine_file).dump()));
  return all;
}

std::string command_to_go_on(const std::string& verb, const ExperimentArguments& experiment,
                             const std::vector<std::string>& more, const Shared& shared) {
  std::vector<std::string> argv = split(verb, ' ');
  argv.insert(argv.begin(), started_as(shared.argv.front()));
  const auto words = experiment.words();
  argv.insert(argv.end(), words.begin(), words.end());
  argv.insert(argv.end(), more.begin(), more.end());
  argv.insert(argv.end(), {"--db", shared.db});
  return command_line(argv);
}

std::vector<std::string> profile_folders(const std::vector<std::string>& further) {
  std::vector<std::string> folders{data_path("profiles/environments")};
  folders.insert(folders.end(), further.begin(), further.end());
  return folders;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const auto& note : notes) tell(fmt::format("note: {}\n", printable(note)));
}

namespace {

/// How far predictions of the file were off; none was ever tried where it is of no run.
std::string held_out_text(const MachineModel& machine) {
  if (!machine.measured || machine.measured->errors.empty()) return "how far off is not known";
  std::vector<std::string> parts;
  for (const auto& [what, error] : machine.measured->errors)
    parts.push_back(fmt::format("{} left out {:.0f} % (median), {:.0f} % (nine of ten)",
                                name_of(what), 100 * error.median, 100 * error.p90));
  return "its file was off by " + join(parts, ", ");
}

/// The machine's file becomes part of what the environment is, and its error of what it is called.
void read_machines(Experiment& experiment, const std::map<std::string, std::string>& given) {
  for (auto& [name, profile] : experiment.profiles) {
    if (!profile.simulated()) continue;
    const auto carried = given.find(profile.machine);
    const std::string path =
        carried != given.end()
            ? profile.machine
            : machine_model_path(profile.machine, data_path("profiles/machines"));
    profile.machine_toml = carried != given.end() ? carried->second : read_input_file(path);
    const MachineModel machine = parse_machine_model(profile.machine_toml, path);
    profile.description = fmt::format(
        "simulated by SimGrid's SMPI on {} ({}): nothing was "
        "measured, {}",
        machine.name, machine.description, held_out_text(machine));
  }
}

Experiment read_file(const ExperimentArguments& arguments) {
  std::vector<std::string> notes;
  const auto profiles = load_profiles(profile_folders(arguments.profile_folders), &notes);
  std::error_code unseen;
  // Where a folder may not be entered, reading says so.
  if (!std::filesystem::exists(arguments.file, unseen) && !unseen)
    throw Error(ErrorKind::input,
                fmt::format("{}: cannot be read: there is no such file; `dynamiccl experiments` "
                            "lists those that come along, each with what it asks",
                            arguments.file));
  Experiment experiment = read_experiment(arguments.file, all_overrides(arguments), profiles);
  notes.insert(notes.end(), experiment.notes.begin(), experiment.notes.end());
  print_notes(notes);
  read_machines(experiment, arguments.machines);
  if (only_user_namespaces()) {
    const auto asked = experiment.profiles;
    for (const auto& [name, profile] : asked)
      experiment.profiles[name] = profile_for_user(asked, name, true);
  }
  return experiment;
}

/// Cells whose ranks lie on other machines are not those of one machine, whatever the environment.
void mark_cluster(Experiment& experiment, const ClusterSession& cluster) {
  for (auto& [name, profile] : experiment.profiles)
    profile.cluster = placement_key(cluster.options(), cluster.nodes().size());
}

/// What a message repeats of somebody's text: no more than 200 bytes, at the end of a whole letter
/// of UTF-8, and how many bytes it has.
std::string beginning_of(const std::string& text) {
  constexpr std::size_t kMost = 200;
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return fmt::format("{}... ({} bytes)", text.substr(0, end), text.size());
}

/// What dropped all cells of an experiment, of what it has that can.
std::string what_dropped_all(const Experiment& experiment, bool only) {
  std::set<Architecture> there;
  for (const auto& dimension : experiment.dimensions)
    for (const auto& choice : dimension)
      if (choice.architecture) there.insert(*choice.architecture);
  std::vector<std::string> causes;
  if (!experiment.where.empty()) causes.emplace_back("where");
  if (!experiment.exclude.empty()) causes.emplace_back("exclude");
  if (only) causes.emplace_back("--only");
  std::set<std::string> of_work;
  for (const auto& work : experiment.work) {
    if (!work.backends.empty()) of_work.insert("a work's backend");
    if (!work.architectures.empty()) of_work.insert("a work's architecture");
    for (const auto method : work.training)
      if (!there.contains(architecture_of(method)))
        of_work.insert(fmt::format("{}, which runs with architecture \"{}\"", name_of(method),
                                   name_of(architecture_of(method))));
  }
  causes.insert(causes.end(), of_work.begin(), of_work.end());
  return causes.empty() ? "axes and work do not fit" : "dropped by " + join(causes, ", or by ");
}

Plan expand(const Experiment& experiment, const ExperimentArguments& arguments,
            const Capabilities& can) {
  std::optional<Expression> only;
  if (!arguments.only.empty()) {
    std::vector<std::string> environments;
    for (const auto& [name, profile] : experiment.profiles) environments.push_back(name);
    try {
      only = Expression::parse(arguments.only, environments);
      for (const auto& note : only->notes())
        print_notes({fmt::format("--only '{}': {}", beginning_of(arguments.only), note)});
    } catch (const Error& error) {
      throw error.with_context("--only '" + beginning_of(arguments.only) + "'");
    }
  }
  Plan plan = make_plan(experiment, can, only ? &*only : nullptr);
  if (plan.groups.empty())
    throw Error(ErrorKind::input, fmt::format("{}: no cell is left: {}", arguments.file,
                                              what_dropped_all(experiment, only.has_value())));
  return plan;
}

}  // namespace

LoadedExperiment load_experiment(const ExperimentArguments& arguments) {
  LoadedExperiment loaded{read_file(arguments), {}, nullptr};
  loaded.cluster = cluster_session(loaded.experiment);
  if (loaded.cluster) mark_cluster(loaded.experiment, *loaded.cluster);
  const auto& profiles = loaded.experiment.profiles;
  loaded.plan = expand(loaded.experiment, arguments,
                       loaded.cluster ? inspect_cluster(profiles, program_folder(), *loaded.cluster)
                                      : inspect_machine(profiles, program_folder()));
  rule_out_groups_without_commands(loaded.plan, loaded.experiment, loaded.cluster);
  if (loaded.plan.trains()) use_training_image();
  return loaded;
}

LoadedExperiment load_experiment_of_anywhere(const ExperimentArguments& arguments) {
  Capabilities all;
  all.gpus = std::numeric_limits<int>::max();
  LoadedExperiment loaded{read_file(arguments), {}, nullptr};
  loaded.cluster = cluster_session(loaded.experiment);
  if (loaded.cluster) mark_cluster(loaded.experiment, *loaded.cluster);
  loaded.plan = expand(loaded.experiment, arguments, all);
  return loaded;
}

}  // namespace dynamiccl
