#include "orchestrator/cli/verbs/capsule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "containers/command.hpp"
#include "containers/image.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/stored_experiment.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/passing_folder.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kDatabase = "runs.sqlite";
constexpr const char* kExperiment = "experiment.toml";

/// Files of the machines that a run simulated, by what its experiment calls them.
std::map<std::string, std::string> simulated_machines(const Reader& reader,
                                                      const std::string& run) {
  const Table table = reader.query(
      "SELECT DISTINCT p.profile_json ->> '$.machine' AS machine, p.profile_json ->> "
      "'$.machine_toml' AS text FROM profile p JOIN plan_group g ON g.profile_id = p.id JOIN run r "
      "ON r.id = g.run_id WHERE r.uuid = ?1 AND p.profile_json ->> '$.machine_toml' <> ''",
      {run});
  const TableView rows(table);
  std::map<std::string, std::string> machines;
  for (std::size_t i = 0; i < rows.size(); ++i)
    machines[rows.text(i, "machine")] = rows.text(i, "text");
  return machines;
}

void fill(const fs::path& folder, const Shared& shared, const std::string& run) {
  const auto stored = stored_experiment(Reader(shared.db), run, "export --capsule");
  { Store((folder / kDatabase).string()).merge(shared.db); }
  std::map<std::string, std::string> texts{{kExperiment, stored.text},
                                           {"versions.txt", installation_text() + "\n"}};
  for (const auto& [name, text] : recipe_files()) texts["image/" + name] = text;
  json machines = json::object();
  for (const auto& [machine, text] : simulated_machines(Reader(shared.db), run)) {
    const std::string name = fmt::format("machines/{}.toml", machines.size());
    machines[machine] = name;
    texts[name] = text;
    fs::create_directories(folder / "machines");
  }
  fs::create_directories(folder / "image");
  json sums{{kDatabase, sha256_hex(file_text((folder / kDatabase).string()))}};
  for (const auto& [name, text] : texts) {
    write_output((folder / name).string(), text, "--capsule", shared.db);
    sums[name] = sha256_hex(text);
  }
  const ordered_json manifest{{"capsule", 1},
                              {"run_id", run},
                              {"overrides", stored.overrides},
                              {"only", stored.only},
                              {"machines", machines},
                              {"versions", split(installation_text(), '\n').front()},
                              {"sha256", sums}};
  write_output((folder / kManifest).string(), manifest.dump(1) + "\n", "--capsule", shared.db);
}

/// Who asked the program to end is not kept by a large file.
struct Interrupted {};

/// As large as an experiment's file may be; a manifest is smaller.
constexpr std::size_t kLargestExperiment = std::size_t{16} << 20;

/// A tool over a stranger's files, which may be large.
CommandResult run_tool(const std::vector<std::string>& argv) {
  CommandOptions options;
  options.timeout = std::chrono::minutes(10);
  options.interrupted = interrupted;
  auto result = run_command(argv, options);
  if (interrupted()) throw Interrupted{};
  return result;
}

struct Capsule {
  fs::path folder;
  json manifest;
  [[nodiscard]] std::string database() const { return (folder / kDatabase).string(); }
  [[nodiscard]] std::string run() const { return manifest.at("run_id"); }
};

bool are_texts(const json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const json& one) { return one.is_string(); });
}

Error damaged(const fs::path& capsule, const std::string& what) {
  return {ErrorKind::data,
          fmt::format("{}: {}: it is no whole capsule; copy it again", capsule.string(), what)};
}

/// @throws Error(data) for a file that is not as it was written, or none
Capsule checked(const fs::path& folder) {
  // What is read below could be a link to elsewhere, or a pipe that nobody writes into.
  std::error_code none;
  for (fs::recursive_directory_iterator entry(folder, none), end; !none && entry != end;
       entry.increment(none)) {
    const auto kind = entry->symlink_status(none).type();
    if (kind != fs::file_type::regular && kind != fs::file_type::directory)
      throw damaged(folder, entry->path().lexically_relative(folder).string() + " is no file");
  }
  Capsule capsule{folder,
                  json_or_discarded(file_text((folder / kManifest).string(), kLargestExperiment))};
  const json& manifest = capsule.manifest;
  if (!manifest.is_object() || !manifest.contains("sha256") || !manifest["sha256"].is_object() ||
      !manifest.contains("run_id") || !manifest["run_id"].is_string() ||
      manifest.value("capsule", json()) != 1 || !are_texts(manifest.value("overrides", json())) ||
      !manifest.value("only", json()).is_string() ||
      !manifest.value("versions", json()).is_string())
    throw damaged(folder, fmt::format("{} is none", kManifest));
  for (const auto& [name, sum] : manifest["sha256"].items()) {
    const fs::path relative(name);
    if (relative.is_absolute() || name.find("..") != std::string::npos)
      throw damaged(folder, name + " lies outside");
    // Of a file that is missing nothing is printed.
    const std::string found =
        run_tool({"sha256sum", "--", (folder / relative).string()}).out.substr(0, 64);
    if (found.size() != 64 || sum != found)
      throw damaged(folder, name + " is not what its checksum says");
  }
  for (const char* needed : {kDatabase, kExperiment})
    if (!manifest["sha256"].contains(needed))
      throw damaged(folder, std::string(needed) + " is missing");
  const json machines = manifest.value("machines", json::object());
  if (!machines.is_object()) throw damaged(folder, fmt::format("{} is none", kManifest));
  for (const auto& [machine, name] : machines.items())
    if (!name.is_string() || !manifest["sha256"].contains(name.get<std::string>()))
      throw damaged(folder, fmt::format("the file of {} is missing", machine));
  static_cast<void>(Reader(capsule.database()).resolve_run(capsule.run()));  // before it measures
  return capsule;
}

/// A run's findings by their subject: each environment's verdict, and what leads.
std::map<std::string, std::string> findings(const Reader& reader, const std::string& run) {
  std::map<std::string, std::string> said;
  const auto add = [&](const char* query, const std::vector<const char*>& key, auto&& value) {
    QueryScope scope;
    scope.runs = {run};
    const Table table = named_query(reader, query, scope);
    const TableView rows(table);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::string name;
      for (const char* column : key) {
        const std::string part = rows.text(i, column);
        if (!part.empty() && part != "{}") name += (name.empty() ? "" : " ") + part;
      }
      said[name] = value(rows, i);
    }
  };
  add("overhead",
      {"environment", "backend", "architecture", "collective", "size_bytes", "ranks", "datatype",
       "algorithm", "in_place", "group_knobs", "cell_knobs"},
      [](const TableView& rows, std::size_t i) { return rows.text(i, "verdict"); });
  add("best", {"environment", "collective", "size_bytes", "ranks", "datatype", "in_place"},
      [](const TableView& rows, std::size_t i) {
        return rows.text(i, "lead_is_sure") == "yes"
                   ? fmt::format("{} {} {} {}", rows.text(i, "best_backend"),
                                 rows.text(i, "best_architecture"), rows.text(i, "best_algorithm"),
                                 rows.text(i, "best_knobs"))
                   : "UNCLEAR";
      });
  return said;
}

std::map<std::string, std::set<std::string>> regimes(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT DISTINCT environment || ' ' || backend AS place, coalesce(regime_name, '') AS regime "
      "FROM v_measurement WHERE run_id = ?1 AND counts",
      {run});
  const TableView rows(table);
  std::map<std::string, std::set<std::string>> of;
  for (std::size_t i = 0; i < rows.size(); ++i)
    of[rows.text(i, "place")].insert(rows.text(i, "regime"));
  return of;
}

bool is_open(const std::string& verdict) {
  return verdict.empty() || verdict == "UNCLEAR" || verdict == "NOT JUDGED";
}

/// Rows of what, then, now, outcome: "same", "differs", "open" (not sure in one of them), "absent".
Table what_repeated(const Capsule& capsule, const Shared& shared, const std::string& run) {
  const Reader then(capsule.database());
  const Reader now(shared.db);
  Table table;
  table.columns = {"what", "then", "now", "outcome"};
  const auto words = [](const std::set<std::string>& names) {
    return join({names.begin(), names.end()}, ", ");
  };
  const auto regimes_now = regimes(now, run);
  for (const auto& [place, names] : regimes(then, capsule.run())) {
    const auto found = regimes_now.find(place);
    if (found == regimes_now.end() || found->second != names)
      table.rows.push_back({"regime of " + place, words(names),
                            found == regimes_now.end() ? "" : words(found->second),
                            std::string(found == regimes_now.end() ? "absent" : "regime")});
  }
  const auto said = findings(now, run);
  for (const auto& [what, verdict] : findings(then, capsule.run())) {
    const auto found = said.find(what);
    const std::string here = found == said.end() ? "" : found->second;
    const char* outcome = found == said.end()                 ? "absent"
                          : is_open(verdict) || is_open(here) ? "open"
                          : verdict == here                   ? "same"
                                                              : "differs";
    table.rows.push_back({what, verdict, here, std::string(outcome)});
  }
  return table;
}

int say(const Table& table, const std::string& run, const Shared& shared) {
  std::map<std::string, std::size_t> count;
  Table shown = table;
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) ++count[rows.text(i, "outcome")];
  std::erase_if(shown.rows, [](const auto& row) {
    const auto& outcome = std::get<std::string>(row.back());
    return outcome == "same" || outcome == "open";
  });
  const int code = count["differs"] > 0 ? exit_code::kRegression
                   : count["same"] > 0  ? exit_code::kFine
                                        : exit_code::kUnclear;
  if (shared.json) {
    fmt::print("{}\n", ordered_json{{"run_id", run},
                                    {"findings",
                                     ordered_json::parse(render_table(table, OutputFormat::json))},
                                    {"exit_code", code}}
                           .dump(1, ' ', false, ordered_json::error_handler_t::replace));
    return code;
  }
  if (!shown.rows.empty())
    fmt::print("what is otherwise here\n{}",
               render_table(shown, OutputFormat::text, {}, stdout_columns()));
  fmt::print(
      "run {}: {} came out as in the capsule, {} otherwise, {} not sure in one of the two runs, {} "
      "measured there alone; {} of another regime\n",
      run.substr(0, 8), counted(count["same"], "verdict"), count["differs"], count["open"],
      count["absent"], count["regime"]);
  return code;
}

int repeat(const Capsule& capsule, const Shared& shared, int launches) {
  ExperimentArguments arguments;
  arguments.file = (capsule.folder / kExperiment).string();
  arguments.only = capsule.manifest.value("only", "");
  arguments.overrides = capsule.manifest.value("overrides", std::vector<std::string>{});
  std::erase_if(arguments.overrides, is_mark);
  const json machines = capsule.manifest.value("machines", json::object());
  for (const auto& [machine, name] : machines.items())
    arguments.machines[machine] =
        file_text((capsule.folder / name.get<std::string>()).string(), kLargestExperiment);
  if (launches > 0) arguments.overrides.push_back(fmt::format("protocol.launches={}", launches));
  const auto loaded = load_experiment(arguments);
  make_db_folder(shared.db);
  Store store(shared.db);
  Console console(shared.verbosity());
  LaunchSite site = launch_site(shared.db, "");
  site.cluster = loaded.cluster;
  site.machine = loaded.experiment.machine;
  const auto info = new_run(loaded.experiment, arguments.file, shared.argv);
  console.note(fmt::format("run {}: {}, {} to measure", info.id,
                           counted(loaded.plan.groups.size(), "group"),
                           counted(loaded.plan.possible_cells(), "cell")));
  Executor executor(loaded.experiment, loaded.plan, std::move(site), store, console);
  const auto summary = executor.run(info, std::nullopt);
  if (summary.interrupted_by != 0) return 128 + summary.interrupted_by;
  const int code = say(what_repeated(capsule, shared, summary.run_id), summary.run_id, shared);
  return summary.ok() || code == exit_code::kRegression ? code : exit_code::kCellFailed;
}

void put_capsule(const Shared& shared, const std::string& place, const std::string& run) {
  std::error_code ignored;
  if (!place.ends_with(".tar")) {
    fs::create_directories(place, ignored);  // what is wrong with it its first file says
    return fill(place, shared, run);
  }
  const PassingFolder folder("capsule");
  fill(folder.path(), shared, run);
  write_output(place, "", "--capsule", shared.db);  // who may not read one reads neither
  const auto tar =
      run_tool({"tar", "--force-local", "-C", folder.path().string(), "-cf", place, "."});
  if (tar.exit_code != 0)
    throw Error(ErrorKind::environment,
                place + ": cannot be packed: " + std::string(trim(tar.err)));
}

}  // namespace

void write_capsule(Shared& shared, const std::string& place, const std::string& run) {
  const InterruptGuard guard;
  std::error_code ignored;
  if (fs::exists(place, ignored))
    throw Error(ErrorKind::input, place + " exists: name a new folder or .tar with --capsule");
  const std::string id = Reader(shared.db).resolve_run(run);
  try {
    put_capsule(shared, place, id);
  } catch (...) {
    fs::remove_all(place, ignored);  // on a full disk a part of it
    if (!interrupted()) throw;
    shared.exit_code = 128 + interrupt_signal();
    return;
  }
  if (shared.json)
    fmt::print("{}\n", json{{"file", place}, {"run_id", id}}.dump(1));
  else
    fmt::print("{}\n", place);
  if (!shared.json && !shared.quiet)
    tell(
        fmt::format("it holds names of hosts, users and paths, as the database does (export "
                    "--anonymous makes one without)\nrepeat run {} on another machine: dynamiccl "
                    "replay {}\n",
                    id.substr(0, 8), printable(place)));
}

bool is_capsule(const std::string& place) {
  std::error_code ignored;
  return fs::exists(fs::path(place) / kManifest, ignored) ||
         (place.ends_with(".tar") && fs::is_regular_file(place, ignored));
}

namespace {

/// What is said of it comes first: a small archive may hold more than any disk, links out of the
/// folder, and devices.
/// @throws Error(data) for a file that is no archive: its giver's mistake, not the machine's
void unpack(const std::string& archive, const std::string& folder) {
  const auto list = run_tool(
      {"sh", "-c", "tar --force-local -tvf \"$1\" --numeric-owner | head -n 1000", "sh", archive});
  double bytes = 0;
  for (const std::string& line : split(list.out, '\n')) {
    std::istringstream words(line);
    std::string mode, owner;
    double size = 0;
    words >> mode >> owner >> size;
    if (!mode.empty() && mode.front() != '-' && mode.front() != 'd')
      throw damaged(archive, line + " is no file");
    bytes += size;
  }
  if (bytes > 16.0 * (1 << 30) || std::count(list.out.begin(), list.out.end(), '\n') == 1000)
    throw damaged(archive, "it holds more than 16 GiB or 1,000 files");
  const auto tar = run_tool({"tar", "--force-local", "-xf", archive, "-C", folder,
                             "--no-same-owner", "--no-same-permissions", "--no-overwrite-dir"});
  if (tar.exit_code != 0) throw damaged(archive, std::string(trim(tar.err)));
}

/// An experiment says what is started, with which variables, mounts and flags of containers, and
/// the overrides may say otherwise.
void print_experiment(const Capsule& capsule) {
  std::string text = file_text((capsule.folder / kExperiment).string(), kLargestExperiment);
  for (const auto& one : capsule.manifest.at("overrides"))
    text += "# run with --set " + one.get<std::string>() + "\n";
  if (const std::string only = capsule.manifest.at("only"); !only.empty())
    text += "# run with --only " + only + "\n";
  fmt::print("{}", printable(text));
}

int replay_checked(const Shared& shared, const Capsule& capsule, int launches, bool dry_run) {
  const std::string then = capsule.manifest.value("versions", "");
  const std::string now = split(installation_text(), '\n').front();
  if (!shared.json && !shared.quiet)
    fmt::print("capsule of run {}: whole; program: {}\n", printable(capsule.run().substr(0, 8)),
               then == now ? "the same" : printable(fmt::format("{} then, {} now", then, now)));
  if (!dry_run) return repeat(capsule, shared, launches);
  if (!shared.json) print_experiment(capsule);
  return exit_code::kFine;
}

}  // namespace

int replay_capsule(const Shared& shared, const std::string& place, int launches, bool dry_run) {
  const InterruptGuard guard;
  const PassingFolder unpacked("capsule");
  const bool packed = place.ends_with(".tar");
  try {
    if (packed) unpack(place, unpacked.path().string());
    const Capsule capsule = checked(packed ? unpacked.path() : fs::path(place));
    return replay_checked(shared, capsule, launches, dry_run);
  } catch (const Interrupted&) {
    return 128 + interrupt_signal();
  }
}

}  // namespace dynamiccl
