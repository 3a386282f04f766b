#include "orchestrator/run/replay.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "containers/start/environment.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/observe.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/probes/elf.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "reports/model/table_view.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

std::string find_launch(const Reader& reader, const std::string& name) {
  constexpr std::size_t kFewestLetters = 4;
  if (name.size() >= kFewestLetters && name.find_first_of("%_") == std::string::npos) {
    const Table found =
        reader.query("SELECT uuid FROM launch WHERE uuid LIKE ?1 || '%' LIMIT 2", {name});
    if (found.rows.size() == 2)
      throw Error(ErrorKind::input,
                  fmt::format("launch \"{}\" fits several launches; give more letters", name));
    if (found.rows.size() == 1) return TableView(found).text(0, "uuid");
  }
  const std::string run = reader.resolve_run(name);
  const Table newest = reader.query(
      "SELECT launch_id AS uuid FROM v_launch WHERE run_id = ?1 AND launch_status = 'ok' "
      "ORDER BY launch_row DESC LIMIT 1",
      {run});
  if (newest.rows.empty())
    throw Error(ErrorKind::input,
                fmt::format("run {} has no launch that ended well; `dynamiccl query launches "
                            "--run {}` lists its launches",
                            run, run.substr(0, 8)));
  return TableView(newest).text(0, "uuid");
}

/// A launch that left no run.json cannot be made again.
[[noreturn]] void refuse_replay(const Reader& reader, const std::string& launch) {
  const Table table = reader.query(
      "SELECT r.uuid AS run_id, i.format, i.source FROM launch l "
      "JOIN plan_group g ON g.id = l.group_id JOIN run r ON r.id = g.run_id "
      "LEFT JOIN imported_run i ON i.run_id = r.id WHERE l.uuid = ?1",
      {launch});
  const TableView row(table);
  const std::string format = row.text(0, "format");
  const std::string source = format.empty() ? "" : " (imported from " + row.text(0, "source") + ")";
  if (format.empty() || format == "dynamiccl")
    throw Error(ErrorKind::data,
                fmt::format("launch {}{}: nothing was recorded that could be replayed: its "
                            "environment did not start",
                            launch, source));
  const std::string run = row.text(0, "run_id").substr(0, 8);
  throw Error(
      ErrorKind::input,
      fmt::format("launch {} of run {} cannot be replayed: it was imported from {} ({}), the "
                  "results of another program, for which DynamICCL has no command to start. Run "
                  "that program again and import what it prints, or measure the same sizes with "
                  "`dynamiccl run FILE`; `dynamiccl compare {} last` sets both side by side",
                  launch, run, row.text(0, "source"), format, run));
}

Table launch_row(const Reader& reader, const std::string& uuid) {
  return reader.query(
      "SELECT l.block, l.argv_json, l.run_config_json, l.environment_json, l.container_json, "
      "r.uuid AS run_id, r.name, r.spec_path, r.seed, r.tool_version, r.host_json, "
      "r.protocol_json, e.spec_text, e.overrides_json, g.key AS group_id, g.knobs_json, "
      "p.environment, p.profile_json, x.name AS regime, l.regime_json, k.library, "
      "k.facts_json -> '$.libraries.loaded' AS libraries FROM launch l "
      "JOIN plan_group g ON g.id = l.group_id JOIN run r ON r.id = g.run_id "
      "JOIN experiment e ON e.id = r.experiment_id JOIN profile p ON p.id = g.profile_id "
      "LEFT JOIN regime x ON x.id = l.regime_id "
      "LEFT JOIN launch_rank k ON k.launch_id = l.id AND k.rank = 0 WHERE l.uuid = ?1",
      {uuid});
}

PlannedGroup group_of(const TableView& row, const RunConfig& config) {
  PlannedGroup group;
  group.id = row.text(0, "group_id");
  group.environment = row.text(0, "environment");
  group.backend = config.backend;
  group.architecture = config.architecture;
  group.ranks = config.ranks;
  const json knobs = stored_json(row.text(0, "knobs_json"));
  for (const auto& [name, value] : knobs.items()) group.knobs[name] = value.get<std::string>();
  for (const auto& cell : config.cells) group.cells.push_back({cell, ""});
  return group;
}

/// A regime keeps what was declared of its machines, in-network aggregation as an ingredient.
MachineDeclarations declared_then(const json& regime) {
  const auto text = [&](const char* pointer) {
    const json value =
        regime.is_object() ? regime.value(json::json_pointer(pointer), json()) : json();
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  MachineDeclarations machine;
  machine.topology = text("/declared/topology");
  machine.deployment = text("/declared/deployment");
  constexpr std::string_view mark = "declared:";
  if (const auto ina = text("/ingredients/ina"); ina.starts_with(mark))
    machine.aggregation = ina.substr(mark.size());
  return machine;
}

Experiment experiment_of(const TableView& row, const RunConfig& config, const std::string& uuid) {
  Experiment experiment;
  experiment.name = row.text(0, "name");
  experiment.seed = std::stoull(row.text(0, "seed"));
  experiment.source_path = row.text(0, "spec_path");
  experiment.source_text = row.text(0, "spec_text");
  for (const auto& word : stored_json(row.text(0, "overrides_json")))
    experiment.overrides.push_back(word.get<std::string>());
  // Another experiment than the one replayed, so that --resume cannot mistake it.
  experiment.overrides.push_back("replay=" + uuid);
  experiment.profiles[row.text(0, "environment")] = profile_from_json(row.text(0, "profile_json"));
  experiment.protocol.cells = config.protocol;
  experiment.protocol.connect_timeout = config.connect_timeout;
  experiment.protocol.launches = 1;
  const json protocol = stored_json(row.text(0, "protocol_json"));
  experiment.protocol.launch_timeout = Micros(protocol.value("launch_timeout_s", 0.0) * 1e6);
  experiment.protocol.noise = noise_limits_from_json(protocol.value("noise", json()));
  return experiment;
}

using Part = std::vector<LeafDifference>;

void add(std::vector<SurroundingDifference>& all, const std::string& part, const Part& leaves) {
  for (const auto& leaf : leaves) all.push_back({part, leaf});
}

json without_names(json container) {
  for (const char* passing : {"containers", "network", "subnet", "exec_argv"})
    if (container.is_object()) container.erase(passing);
  return container;
}

json without_launch_variables(const json& variables) {
  json kept = json::object();
  for (const auto& [name, value] : variables.items())
    if (!is_launch_variable(name)) kept[name] = value;
  return kept;
}

/// Without what no run records: a database may come from somebody else.
json recorded_alone(const json& variables) {
  json kept = json::object();
  for (const auto& [name, value] : variables.items())
    if (is_recorded_variable(name)) kept[name] = value;
  return kept;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// The command with what is new for every launch put the same way.
std::vector<std::string> comparable(const std::vector<std::string>& argv, const std::string& folder,
                                    const json& variables, const json& container) {
  std::vector<std::string> words;
  for (auto word : argv) {
    word = replaced(word, folder, "LAUNCH");
    for (const char* name : {"DYNAMICCL_ENVIRONMENT", "DYNAMICCL_OWNER"})
      if (variables.is_object()) word = replaced(word, variables.value(name, ""), name);
    if (container.is_object()) word = replaced(word, container.value("subnet", ""), "SUBNET");
    words.push_back(word);
  }
  return words;
}

/// How many of the words from i and j on two commands have in common, in their order.
std::vector<std::vector<std::size_t>> common_words(const std::vector<std::string>& a,
                                                   const std::vector<std::string>& b) {
  std::vector<std::vector<std::size_t>> common(a.size() + 1,
                                               std::vector<std::size_t>(b.size() + 1, 0));
  for (std::size_t i = a.size(); i-- > 0;)
    for (std::size_t j = b.size(); j-- > 0;)
      common[i][j] =
          a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  return common;
}

}  // namespace

std::vector<LeafDifference> command_differences(const std::vector<std::string>& then,
                                                const std::vector<std::string>& now) {
  const auto common = common_words(then, now);
  Part differences;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < then.size() || j < now.size()) {
    if (i < then.size() && j < now.size() && then[i] == now[j]) {
      ++i;
      ++j;
      continue;
    }
    // Runs of words that only one of them has; where both have some, they stand side by side.
    const std::size_t place = i;
    std::vector<std::string> gone;
    std::vector<std::string> come;
    while (i < then.size() && (j == now.size() || then[i] != now[j]) &&
           (j == now.size() || common[i + 1][j] >= common[i][j + 1]))
      gone.push_back(then[i++]);
    while (j < now.size() && (i == then.size() || then[i] != now[j]) &&
           (i == then.size() || common[i + 1][j] < common[i][j + 1]))
      come.push_back(now[j++]);
    differences.push_back({fmt::format("from word {}", place), gone.empty() ? "-" : join(gone, " "),
                           come.empty() ? "-" : join(come, " ")});
  }
  return differences;
}

namespace {

/// The files behind the libraries of then, on a machine without images.
Part library_differences(const StoredLaunch& launch) {
  Part differences;
  if (launch.profile().kind != EnvironmentKind::bare_metal || !launch.libraries.is_array())
    return differences;
  const ProbeRoot root;
  for (const auto& library : launch.libraries) {
    const std::string path = library.value("path", "");
    const auto then = library.find("build_id");
    if (path.empty() || then == library.end() || !then->is_string()) continue;
    const auto now = elf_build_id(root, path);
    if (!now || *now != then->get<std::string>())
      differences.push_back(
          {path, "build " + then->get<std::string>(), now ? "build " + *now : now.reason});
  }
  return differences;
}

/// The launch as it would be made now, without a rank being started.
struct Rehearsal {
  json container;
  json variables;
  std::vector<std::string> argv;
};

Rehearsal rehearse(const StoredLaunch& launch, const LaunchSite& site) {
  const auto& group = launch.group();
  const auto environment =
      start_environment(launch.profile(), {random_uuid(), group.ranks, {site.worker_folder}});
  const std::string folder = "LAUNCH";
  const auto commands =
      make_commands(group, launch.profile(), environment->shape(), site, folder + "/run.json",
                    [&](int rank, const std::vector<std::string>& command,
                        const std::map<std::string, std::string>& env) {
                      return environment->wrap_rank(rank, command, env);
                    });
  Rehearsal rehearsal;
  rehearsal.container = environment->provenance();
  rehearsal.variables = stored_json(recorded_environment(commands));
  rehearsal.argv =
      comparable(recorded_argv(commands), folder, rehearsal.variables, rehearsal.container);
  environment->stop();
  return rehearsal;
}

/// A launch that settled the calls of its samples by itself counts the same ones again.
void keep_batches(const Reader& reader, StoredLaunch& launch) {
  const Table table = reader.query(
      "SELECT c.key, m.batch FROM measurement m JOIN run_cell c ON c.id = m.cell_id "
      "JOIN launch l ON l.id = m.launch_id WHERE l.uuid = ?1 AND m.status = 'ok'",
      {launch.uuid});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (WorkCell& cell : launch.config.cells) {
      const bool trains = cell.collective == Collective::training;
      if (cell.id == rows.text(i, "key") && !trains)
        cell.batch = static_cast<int>(rows.integer(i, "batch"));
    }
  }
}

/// Puts back what run.json does not carry of its cells, and leaves out what each launch has anew.
/// @throws Error(input) for a training of settings that are none any more
void complete_cells(StoredLaunch& launch) {
  for (WorkCell& cell : launch.config.cells) {
    cell.knobs.erase("aggregator");
    if (cell.collective != Collective::training) continue;
    try {
      cell.training = std::make_shared<const TrainingSpec>(parsed_training(cell));
    } catch (const Error& error) {
      throw error.with_context(fmt::format("launch {} cannot be replayed", launch.uuid));
    }
  }
}

}  // namespace

StoredLaunch load_launch(const Reader& reader, const std::string& name) {
  StoredLaunch launch;
  launch.uuid = find_launch(reader, name);
  const Table table = launch_row(reader, launch.uuid);
  const TableView row(table);
  if (row.size() != 1 || row.text(0, "run_config_json") == "{}") refuse_replay(reader, launch.uuid);
  launch.run_id = row.text(0, "run_id");
  launch.block = static_cast<int>(row.integer(0, "block"));
  launch.config = run_config_from_json(row.text(0, "run_config_json"));
  keep_batches(reader, launch);
  complete_cells(launch);
  launch.experiment = experiment_of(row, launch.config, launch.uuid);
  launch.plan.groups.push_back(group_of(row, launch.config));
  for (const auto& word : stored_json(row.text(0, "argv_json")))
    launch.argv.push_back(word.get<std::string>());
  launch.tool_version = row.text(0, "tool_version");
  launch.regime = row.text(0, "regime");
  launch.machine = declared_then(stored_json(row.text(0, "regime_json")));
  launch.host = stored_json(row.text(0, "host_json"));
  launch.variables = recorded_alone(stored_json(row.text(0, "environment_json")));
  launch.container = stored_json(row.text(0, "container_json"));
  launch.libraries = stored_json(row.text(0, "libraries"));
  return launch;
}

std::vector<SurroundingDifference> differences_now(
    const StoredLaunch& launch, const LaunchSite& site,
    const std::map<std::string, EnvironmentProfile>& profiles) {
  std::vector<SurroundingDifference> all;
  const std::string program = fmt::format("dynamiccl {}, {}", tool_version(), build_description());
  if (program != launch.tool_version)
    all.push_back({"program", {"version", launch.tool_version, program}});
  add(all, "host", without_passing(leaf_differences(launch.host, site.host)));
  const auto known = profiles.find(launch.profile().name);
  const std::string profile_part = "profile (the stored one is used)";
  if (known == profiles.end()) {
    all.push_back({profile_part, {"name", launch.profile().name, "-"}});
  } else {
    add(all, profile_part,
        leaf_differences(shown_profile(stored_json(to_json(launch.profile()))),
                         shown_profile(stored_json(to_json(known->second)))));
  }
  add(all, "library", library_differences(launch));
  const auto now = rehearse(launch, site);
  add(all, "container",
      leaf_differences(without_names(launch.container), without_names(now.container)));
  add(all, "variable (set back)",
      leaf_differences(without_launch_variables(launch.variables),
                       without_launch_variables(now.variables)));
  add(all, "command",
      command_differences(
          comparable(launch.argv, launch.config.output_dir, launch.variables, launch.container),
          now.argv));
  return all;
}

void restore_variables(const StoredLaunch& launch,
                       const std::vector<SurroundingDifference>& differences) {
  for (const auto& [part, leaf] : differences) {
    if (!part.starts_with("variable") || !is_recorded_variable(leaf.what)) continue;
    const auto then = launch.variables.find(leaf.what);
    if (then == launch.variables.end()) {
      unsetenv(leaf.what.c_str());
    } else if (then->is_string() && then->get<std::string>() != kRedacted) {
      setenv(leaf.what.c_str(), then->get<std::string>().c_str(), 1);
    }
  }
}

std::vector<SurroundingDifference> differences_seen_by_ranks(const StoredLaunch& then,
                                                             const StoredLaunch& now) {
  std::vector<SurroundingDifference> all;
  if (then.regime != now.regime) all.push_back({"regime", {"name", then.regime, now.regime}});
  add(all, "library", leaf_differences(then.libraries, now.libraries));
  return all;
}

}  // namespace dynamiccl
