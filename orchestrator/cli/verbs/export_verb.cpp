#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/host_name.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/text.hpp"
#include "db/anonymous.hpp"
#include "orchestrator/cli/verbs/capsule.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/tune/measured_table.hpp"
#include "tuner/export/export.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string table;
  std::vector<std::string> measured;
  std::string backend;
  std::vector<std::string> formats;
  std::string out;
  std::string regime;
  int ranks = 0;
  std::string up_to;
  std::string plugin;
  std::string shared_folder;
  std::string anonymous;
  std::string capsule;
  std::string run = "last";
  std::vector<std::string> hidden;
};

std::string names_something(const std::string& word) { return word.empty() ? "is empty" : ""; }

std::string beside_the_program(const char* name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

void write(const fs::path& path, const std::string& text) {
  write_output(path.string(), text, "--out");
}

/// The library that the first file is for, unless one is named.
Backend backend_of(const Arguments& arguments) {
  if (!arguments.backend.empty()) return parse_named<Backend>(arguments.backend);
  return find_named<Backend>(arguments.formats.front()).value_or(Backend::nccl);
}

/// Settings are chosen for one library at a time: files for another would be empty without a word.
void refuse_other_libraries(const Arguments& arguments) {
  const Backend chosen = backend_of(arguments);
  for (const std::string& format : arguments.formats) {
    const auto library = find_named<Backend>(format);
    // What loads files of Open MPI on GPUs is Open MPI.
    const bool loads = !library || *library == chosen ||
                       (chosen == Backend::cuda_aware_mpi && *library == Backend::openmpi);
    if (!loads)
      throw Error(ErrorKind::input,
                  fmt::format("--measured chooses the settings of one library at a time, here of "
                              "{} ({}), which has none for --format {}; export those by a command "
                              "of their own: --measured {} --format {}",
                              name_of(chosen),
                              arguments.backend.empty() ? "the first format's" : "--backend",
                              format, join(arguments.measured, " "), format));
  }
}

ConfigurationTable table_of(const Arguments& arguments, const Shared& shared) {
  if (arguments.measured.empty()) {
    if (!arguments.backend.empty())
      throw Error(ErrorKind::input,
                  "--backend says whose settings are chosen: it goes with --measured; a table has "
                  "its own");
    if (!arguments.up_to.empty())
      throw Error(ErrorKind::input,
                  "--up-to narrows what settings are chosen from: it goes with --measured");
    if (arguments.table.empty())
      throw Error(ErrorKind::input,
                  "name a configuration table, or with --measured a run to choose settings from");
    return read_table(arguments.table);
  }
  refuse_other_libraries(arguments);
  JointOptions options;
  if (!arguments.up_to.empty()) options.largest = parse_bytes(arguments.up_to);
  return measured_table(Reader(shared.db), arguments.measured, backend_of(arguments), options);
}

void say(const Export& made, const fs::path& folder, Shared& shared, nlohmann::json& answer) {
  for (const ExportedFile& file : made.files) {
    answer["files"].push_back((folder / file.name).string());
    if (!shared.json) fmt::print("{}\n", (folder / file.name).string());
  }
  for (const std::string& line : made.use) answer["use"].push_back(line);
  for (const std::string& line : made.notes) answer["notes"].push_back(line);
  if (shared.json || shared.quiet) return;
  for (const std::string& line : made.use) tell(fmt::format("use: {}\n", printable(line)));
  for (const std::string& line : made.notes) tell(fmt::format("note: {}\n", printable(line)));
}

/// The database without what tells this machine and its people.
void export_database(const Arguments& arguments, const Shared& shared) {
  if (!arguments.table.empty() || !arguments.formats.empty() || !arguments.measured.empty() ||
      !arguments.out.empty())
    throw Error(ErrorKind::input,
                "--anonymous copies the database into the file it names: it goes without a table, "
                "--format, --measured and --out");
  const fs::path folder = fs::absolute(arguments.anonymous).parent_path();
  if (std::error_code ignored; !fs::is_directory(folder, ignored))
    throw Error(ErrorKind::input, fmt::format("{}: its folder {} does not exist; create it, or "
                                              "choose another place with --anonymous",
                                              arguments.anonymous, folder.string()));
  std::vector<std::string> hidden = arguments.hidden;
  if (const std::string host = host_name(); !host.empty()) hidden.push_back(host);
  if (const passwd* user = getpwuid(geteuid()); user != nullptr && geteuid() != 0)
    hidden.emplace_back(user->pw_name);
  const auto summary = write_anonymous(shared.db, arguments.anonymous, hidden);
  if (shared.json) {
    fmt::print("{}\n", nlohmann::json{{"file", arguments.anonymous},
                                      {"hosts", summary.hosts},
                                      {"users", summary.users},
                                      {"paths", summary.paths},
                                      {"addresses", summary.addresses}}
                           .dump(1));
    return;
  }
  fmt::print("{}\n", arguments.anonymous);
  if (shared.quiet) return;
  tell(fmt::format(
      "replaced: {} hosts, {} users, {} paths, {} addresses and ids; left out: what "
      "programs wrote to stderr, comments of experiments\n"
      "names of runs, profiles and settings stay: see `dynamiccl list --db {}`, and hide "
      "more with --hide WORD\n",
      summary.hosts, summary.users, summary.paths, summary.addresses,
      printable(arguments.anonymous)));
}

/// Files of one format and where they go.
struct ReadyExport {
  Export made;
  fs::path folder;
};

/// Everything is made by now: an error leaves no files of formats before it.
void put(const std::vector<ReadyExport>& ready, Shared& shared, nlohmann::json& answer) {
  for (const auto& [made, folder] : ready) {
    std::error_code problem;  // what is wrong with the folder its first file says
    fs::create_directories(folder, problem);
    for (const ExportedFile& file : made.files) write(folder / file.name, file.text);
    say(made, folder, shared, answer);
  }
}

/// A table may come from somebody else: its regimes name folders here and nowhere else.
void require_folder_name(const TableRegime& regime) {
  const bool plain = std::all_of(regime.id.begin(), regime.id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (!plain || regime.id.empty() || regime.id.front() == '.')
    throw Error(ErrorKind::data,
                fmt::format("regime \"{}\" of the table is no id, which its folder would be named "
                            "after; make the table anew with `dynamiccl tune`",
                            regime.id));
}

/// What the table has for these formats in the folder. A format for which it has nothing leaves the
/// others theirs.
/// @param where "", or the regime, which is named then
/// @returns why each of those that have nothing has none
std::vector<std::string> export_formats(const ConfigurationTable& table,
                                        const std::vector<ExportFormat>& formats,
                                        const ExportOptions& options, const std::string& where,
                                        std::vector<ReadyExport>& ready) {
  std::vector<std::string> lacking;
  for (const ExportFormat format : formats) {
    try {
      ready.push_back({export_table(table, format, options), options.folder});
    } catch (const Error& error) {
      lacking.push_back(fmt::format("{}{}: {}", where, name_of(format), error.what()));
    }
  }
  return lacking;
}

void note(const std::vector<std::string>& lines, const Shared& shared, nlohmann::json& answer) {
  for (const std::string& line : lines) {
    answer["notes"].push_back(line);
    if (!shared.json && !shared.quiet) tell(fmt::format("note: {}\n", printable(line)));
  }
}

bool has_no_file(const std::vector<ReadyExport>& ready) {
  return std::all_of(ready.begin(), ready.end(),
                     [](const ReadyExport& one) { return one.made.files.empty(); });
}

/// That a search kept every library's own choices is an answer: nothing is to be loaded.
/// @throws Error(input) of `reason` where the table says nothing of these libraries
void refuse_unless_all_default(const ConfigurationTable& table,
                               const std::vector<ExportFormat>& formats, const std::string& reason,
                               Shared& shared, nlohmann::json& answer) {
  std::size_t rows = 0;
  for (const auto& entry : table.entries)
    for (const auto format : formats)
      if (name_of(entry.key.task.backend) == name_of(format)) {
        if (!entry.is_default()) throw Error(ErrorKind::input, reason);
        ++rows;
      }
  if (rows == 0) throw Error(ErrorKind::input, reason);
  note({fmt::format("nothing was surely faster than the libraries' own choices in {}: there is "
                    "nothing to load, and no file is written",
                    counted(rows, "row"))},
       shared, answer);
}

/// Formats of libraries of which the regime has no rows are left out where another one has some.
std::vector<ExportFormat> formats_of(const ConfigurationTable& table, const std::string& regime,
                                     const std::vector<ExportFormat>& formats) {
  std::vector<ExportFormat> asked;
  for (const ExportFormat format : formats) {
    bool here = false;
    bool elsewhere = false;
    for (const TableEntry& entry : table.entries)
      if (name_of(entry.key.task.backend) == name_of(format))
        (entry.key.regime == regime ? here : elsewhere) = true;
    if (here || !elsewhere) asked.push_back(format);
  }
  return asked;
}

/// A table of several regimes: a folder for each.
std::vector<ReadyExport> export_regimes(const ConfigurationTable& table,
                                        const std::vector<ExportFormat>& formats,
                                        const std::vector<const TableRegime*>& regimes,
                                        ExportOptions options, Shared& shared,
                                        nlohmann::json& answer) {
  const fs::path base = options.folder;
  std::vector<ReadyExport> ready;
  std::vector<std::string> lacking;
  for (const TableRegime* regime : regimes) require_folder_name(*regime);
  for (const TableRegime* regime : regimes) {
    options.regime = regime->id;
    options.folder = (base / regime->id).string();
    for (auto& line : export_formats(table, formats_of(table, regime->id, formats), options,
                                     fmt::format("{} ({}), ", regime->name, regime->id), ready))
      lacking.push_back(std::move(line));
  }
  if (has_no_file(ready))
    refuse_unless_all_default(
        table, formats,
        "none of the table's regimes has anything for these formats:\n  " + join(lacking, "\n  "),
        shared, answer);
  else
    note(lacking, shared, answer);
  return ready;
}

/// One regime has rows of one library, as a rule: formats of others are named and left out.
std::vector<ReadyExport> export_one_regime(const ConfigurationTable& table,
                                           const std::vector<ExportFormat>& formats,
                                           const ExportOptions& options, Shared& shared,
                                           nlohmann::json& answer) {
  std::vector<ReadyExport> ready;
  const auto lacking = export_formats(table, formats, options, "", ready);
  if (has_no_file(ready))
    refuse_unless_all_default(
        table, formats,
        formats.size() == 1
            ? lacking.front().substr(lacking.front().find(": ") + 2)
            : "the table has nothing for any of these formats; --format toml has its rows, "
              "whatever library they are of:\n  " +
                  join(lacking, "\n  "),
        shared, answer);
  else
    note(lacking, shared, answer);
  return ready;
}

void run_export(const Arguments& arguments, Shared& shared) {
  if (const auto& other = arguments.capsule.empty() ? arguments.anonymous : arguments.capsule;
      !other.empty() && !arguments.table.empty())
    throw Error(
        ErrorKind::input,
        fmt::format("export: \"{}\" would be a table of settings, and {} has none; a run is "
                    "named by --run, with --capsule",
                    arguments.table, other));
  if (!arguments.capsule.empty()) return write_capsule(shared, arguments.capsule, arguments.run);
  if (!arguments.anonymous.empty()) return export_database(arguments, shared);
  if (!arguments.hidden.empty()) throw Error(ErrorKind::input, "--hide goes with --anonymous");
  if (arguments.formats.empty())
    throw Error(ErrorKind::input, "--format is required: " + join(all_names<ExportFormat>(), ", ") +
                                      "; or --anonymous for a copy of the database to share");
  if (arguments.out.empty())
    throw Error(ErrorKind::input, "--out is required: a folder for the files");
  std::vector<ExportFormat> formats;
  for (const std::string& name : arguments.formats)
    if (const auto format = parse_named<ExportFormat>(name);
        std::find(formats.begin(), formats.end(), format) == formats.end())
      formats.push_back(format);
  // The files that jobs load have a variable a line.
  for (const auto& [option, path] :
       {std::pair{"--plugin", &arguments.plugin},
        std::pair{"--shared-folder", &arguments.shared_folder}, std::pair{"--out", &arguments.out}})
    require_one_line(option, *path);
  const ConfigurationTable table = table_of(arguments, shared);
  const fs::path folder = fs::absolute(arguments.out);
  require_no_strangers(folder, "choose another place with --out");
  ExportOptions options{arguments.regime, arguments.ranks, folder.string(),
                        arguments.plugin.empty() ? beside_the_program("libdynamiccl-nccl-plugin.so")
                                                 : arguments.plugin,
                        arguments.shared_folder};
  nlohmann::json answer{{"files", nlohmann::json::array()},
                        {"use", nlohmann::json::array()},
                        {"notes", nlohmann::json::array()}};
  const auto regimes = regimes_with_rows(table);
  const std::vector<ReadyExport> ready =
      arguments.regime.empty() && regimes.size() > 1
          ? export_regimes(table, formats, regimes, options, shared, answer)
          : export_one_regime(table, formats, options, shared, answer);
  if (!arguments.measured.empty() && !arguments.table.empty()) write_table(table, arguments.table);
  put(ready, shared, answer);
  if (shared.json) fmt::print("{}\n", answer.dump(1));
}

}  // namespace

void add_export_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("export",
                                  "write settings as the files that NCCL, Open MPI, MPICH and Gloo "
                                  "jobs load, or a database or capsule "
                                  "for sharing");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("TABLE", arguments->table,
                   "configuration table (left by tune; written with --measured)");
  verb->add_option("--measured", arguments->measured,
                   "choose the settings from these runs' measurements: id, its beginning, or last");
  verb->add_option("--backend", arguments->backend,
                   "with --measured: whose settings (those of the first format)");
  add_choice_option(*verb, "--format", arguments->formats, all_names<ExportFormat>(),
                    "what the files are for; several may be given")
      ->delimiter(',');
  verb->add_option("--out", arguments->out,
                   "folder for the files; jobs must see it under this path");
  verb->add_option(
      "--regime", arguments->regime,
      "id or name of the table's regime, or its beginning (of several, a folder each)");
  verb->add_option("--ranks", arguments->ranks, "only settings of this many ranks")
      ->check(CLI::PositiveNumber);
  verb->add_option("--up-to", arguments->up_to,
                   "with --measured: a profile for messages up to this size, which gives none away "
                   "for larger ones");
  verb->add_option("--plugin", arguments->plugin,
                   "where jobs find libdynamiccl-nccl-plugin.so (next to this program)");
  verb->add_option("--shared-folder", arguments->shared_folder,
                   "where ranks see the folder of NCCL's network, for settings that go through one "
                   "(the table's own, or /run/job)");
  verb->add_option("--anonymous", arguments->anonymous,
                   "instead: copy the database into this new file, for sharing, without hosts, "
                   "users, paths and addresses")
      ->check(names_something);
  auto* capsule = verb->add_option(
      "--capsule", arguments->capsule,
      "instead: write what another machine needs to repeat a run (database, experiment, recipe of "
      "the image, versions, checksums) into this new folder or .tar");
  capsule->check(names_something);
  verb->add_option("--run", arguments->run, "with --capsule: which run is to be repeated (last)")
      ->needs(capsule);
  verb->add_option("--hide", arguments->hidden, "with --anonymous: replace this word, too")
      ->check(names_something);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl export results/tuned.json --format nccl --out tuned\n"
      "  dynamiccl export --measured last --format nccl,toml --out tuned\n"
      "  dynamiccl export --measured last --up-to 16KiB --format nccl --out tuned-small\n"
      "  dynamiccl export results/tuned.json --format openmpi,mpich,gloo --out tuned\n"
      "  dynamiccl export --anonymous shared.sqlite --hide our-project\n"
      "  dynamiccl export --capsule study.tar --run last          for: dynamiccl replay study.tar\n"
      "  NCCL_CONF_FILE=$PWD/tuned/nccl.conf torchrun train.py");
  verb->callback([arguments, &shared] { run_export(*arguments, shared); });
}

}  // namespace dynamiccl
