#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "db/decision_log.hpp"
#include "db/foreign_run.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/formats.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/stored_decisions.hpp"
#include "orchestrator/tune/job/job_tuning.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

struct ImportArguments {
  std::vector<std::string> files;
  std::string format = "auto";
  std::string aggregation = "mean";
  bool as_launches = false;
  std::vector<const CLI::Option*> of_tables;  ///< say what other programs' tables do not
  ImportOptions options;
};

/// Far above what any run prints; its cells take several times as much memory.
constexpr std::size_t kMostLogBytes = std::size_t{256} << 20;
constexpr const char* kDatabaseMark = "SQLite format 3";

std::string read_file(const std::string& path) {
  if (path.empty()) throw Error(ErrorKind::input, "import: an empty name is no file");
  std::error_code error;
  if (fs::is_directory(path, error))
    throw Error(ErrorKind::input, path + ": is a folder; name the files in it");
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::vector<char> part(std::size_t{1} << 20);
  // Pipes and devices say no size.
  // Of a database its name is enough, however large it is.
  while (text.size() <= kMostLogBytes && !text.starts_with(kDatabaseMark) &&
         file.read(part.data(), std::ssize(part)).gcount() > 0)
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostLogBytes)
    throw Error(ErrorKind::input,
                fmt::format("{}: more than the {} MiB that a log may have; import it in parts",
                            path, kMostLogBytes >> 20));
  if (!file.is_open() || file.bad())
    throw Error(ErrorKind::input, path + ": cannot be read; is the name right?");
  return text;
}

/// One row of what the verb prints.
struct Imported {
  std::string file;
  std::string format;
  std::string run_id;
  std::string outcome;
  std::int64_t launches = 0;
  std::int64_t cells = 0;
  std::int64_t incomplete = 0;  ///< cells that some launch of theirs has no row of
};

std::int64_t incomplete_cells(const ForeignRun& run) {
  std::set<std::string> cells;
  for (const auto& launch : run.launches) {
    for (const auto& figure : launch.figures) {
      if (!figure.time_us) cells.insert(figure.cell_id);
    }
  }
  return static_cast<std::int64_t>(cells.size());
}

/// Cells for which the other program itself reports wrong results.
std::set<std::string> failed_cells(const ForeignRun& run) {
  std::set<std::string> cells;
  for (const auto& launch : run.launches) {
    for (const auto& figure : launch.figures) {
      if (figure.status == CellStatus::failed) cells.insert(figure.cell_id);
    }
  }
  return cells;
}

/// What shows that a file's output is not all there; "" = nothing does.
std::string cut_off(const ImportedFile& file) {
  for (const auto& start : file.starts)
    if (!start.cut_off.empty()) return start.cut_off;
  return "";
}

/// A run of tables, with the files it was read from.
struct ReadRun {
  ForeignRun run;
  std::vector<ImportedFile> files;
};

Imported store_run(Store& store, const ReadRun& read, const ImportOptions& options,
                   const Console& console) {
  const ForeignRun& run = read.run;
  for (const auto& warning : import_warnings(read.files, run.format, options))
    console.warning(warning);
  const bool is_new = store.import_run(run);
  std::string outcome = is_new ? "imported" : "already there";
  if (const auto failed = failed_cells(run).size(); failed > 0)
    console.warning(
        fmt::format("{}: reports wrong results in {}: these launches of them are stored as failed "
                    "and no figure counts them; see `query coverage`",
                    run.source, counted_of(failed, run.cells.size(), "cell")));
  bool whole = true;
  for (const auto& file : read.files) {
    const auto why = cut_off(file);
    if (why.empty()) continue;
    whole = false;
    console.warning(
        fmt::format("{}: cut off: {}; the run is stored as interrupted, with the rows that are "
                    "there. Import the program's whole output to have the rest",
                    file.path, why));
  }
  if (is_new && !whole) {
    store.end_run(run.run.id, "interrupted");
    outcome += ", cut off";
  }
  return {run.source,
          run.format,
          run.run.id,
          outcome,
          static_cast<std::int64_t>(run.launches.size()),
          static_cast<std::int64_t>(run.cells.size()),
          incomplete_cells(run)};
}

void merge_database(Store& store, const std::string& path, std::vector<Imported>& done) {
  const auto summary = store.merge(path);
  for (const auto& run : summary.runs) {
    const bool grown =
        std::find(summary.grown.begin(), summary.grown.end(), run) != summary.grown.end();
    done.push_back({path, "dynamiccl", run, grown ? "imported anew: has more by now" : "imported"});
  }
  if (summary.diverged > 0)
    done.push_back({path, "dynamiccl", "",
                    counted(summary.diverged, "run") +
                        " left as before: here and there have launches or choices of their own"});
  if (summary.already_there > 0)
    done.push_back(
        {path, "dynamiccl", "", counted(summary.already_there, "run") + " already there"});
  if (summary.running > 0)
    done.push_back({path, "dynamiccl", "",
                    counted(summary.running, "run") + " left out: still being measured"});
}

/// What `dynamiccl-leader` chose in one job.
struct ReadDecisions {
  ForeignRun run;
  std::string other_id;  ///< of the run where another file begins with the same line
  std::vector<DecisionRecord> records;
};

/// A leader appends to its file: its first line stays.
std::string first_line(const std::string& text) {
  const auto begin = text.find_first_not_of('\n');
  return text.substr(begin, text.find('\n', begin) - begin);
}

void take_id(ForeignRun& foreign, const std::string& id) {
  foreign.run.id = id;
  foreign.run.spec_text = "# what a leader chose in a job: " + id + "\n";
}

ReadDecisions read_leaders_file(const std::string& path, const std::string& text) {
  ReadDecisions read;
  read.records = parse_decisions(text, path);
  if (read.records.empty())
    throw Error(ErrorKind::data, path + ": holds no decision; the leader writes one per choice");
  ForeignRun& foreign = read.run;
  foreign.format = "dynamiccl";
  foreign.source = fs::absolute(path).lexically_normal().string();
  foreign.sha256 = sha256_hex(text);
  foreign.source_json = nlohmann::json{{"decisions", read.records.size()}}.dump();
  foreign.started_utc =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.000Z",
                  fmt::gmtime(std::chrono::system_clock::to_time_t(
                      std::chrono::file_clock::to_sys(fs::last_write_time(path)))));
  take_id(foreign, id_of_import(first_line(text)));
  read.other_id = id_of_import(text);
  foreign.run.name = "job";
  foreign.run.spec_path = foreign.source;
  foreign.run.overrides = {"tune=leader"};
  foreign.run.seed = read.records.front().author.seed;
  foreign.run.tool_version = "dynamiccl-leader";
  foreign.run.host_json = "{}";
  foreign.run.protocol_json = "{}";
  return read;
}

/// By their authors: leaders that followed each other in one folder may have had seeds of their
/// own.
std::vector<StoredSearch> searches_of(const ReadDecisions& read) {
  using Author = std::tuple<std::string, std::string, std::uint64_t>;
  std::map<Author, std::vector<DecisionInfo>> by_author;
  for (const DecisionRecord& record : read.records)
    by_author[{record.author.agent, record.author.policy_version, record.author.seed}].push_back(
        decision_info(record));
  std::vector<StoredSearch> searches;
  for (auto& [author, rows] : by_author) {
    const auto& [agent, policy, seed] = author;
    searches.emplace_back(TuningInfo{"", "job", agent, policy, seed, "{}"}, std::move(rows));
  }
  return searches;
}

Imported store_decisions(Store& store, const std::string& db, const ReadDecisions& read) {
  ForeignRun run = read.run;
  std::vector<StoredSearch> searches = searches_of(read);
  DecisionLog log(db);
  if (const auto known = log.run_of_file(searches, run.source, run.sha256); !known.empty())
    take_id(run, known);
  else if (log.has_choices(run.run.id))
    take_id(run, read.other_id);
  for (auto& [tuning, rows] : searches) tuning.run_id = run.run.id;
  const bool grown = log.has_choices(run.run.id);
  // An import that ended between the run and its choices is completed.
  store.import_run(run);
  const std::size_t added = log.add_new(run, searches);
  if (added == 0) return {run.source, "decisions", run.run.id, "already there"};
  return {run.source, "decisions", run.run.id,
          grown ? fmt::format("{} new, {} already there", counted(added, "choice"),
                              read.records.size() - added)
                : "imported, " + counted(added, "choice")};
}

Table imported_table(const std::vector<Imported>& done) {
  Table table;
  table.columns = {"file", "format", "run_id", "outcome", "launches", "cells", "incomplete_cells"};
  for (const auto& row : done) {
    const bool foreign = row.format != "dynamiccl" && row.format != "decisions";
    table.rows.push_back({row.file, row.format, row.run_id.empty() ? Value{} : Value{row.run_id},
                          row.outcome, foreign ? Value{row.launches} : Value{},
                          foreign ? Value{row.cells} : Value{},
                          foreign ? Value{row.incomplete} : Value{}});
  }
  return table;
}

/// Names of other machines are as good as ours, but one letter off is hardly meant.
void note_strange_environment(const std::string& name, const Console& console) {
  std::vector<std::string> known;
  for (const auto& [profile, ignored] : load_profiles(profile_folders({})))
    known.push_back(profile);
  if (name == ImportOptions{}.environment ||
      std::find(known.begin(), known.end(), name) != known.end())
    return;
  if (const auto near = nearest_word(name, known); !near.empty())
    console.note(
        fmt::format("environment \"{}\" is stored as it stands; did you mean \"{}\"?", name, near));
}

/// A run of ours says everything itself: what is said next to it would be lost.
void refuse_options_of_tables(const ImportArguments& arguments) {
  for (const auto* option : arguments.of_tables)
    if (option->count() > 0)
      throw Error(ErrorKind::input,
                  fmt::format("import: {} is for tables of other programs; the runs of a DynamICCL "
                              "database say it themselves: leave it out",
                              option->get_name()));
}

void run_import(const ImportArguments& arguments, const Shared& shared) {
  auto options = arguments.options;
  check_import_options(options);
  options.aggregation = parse_named<RankAggregation>(arguments.aggregation);
  const auto& formats = import_formats();
  if (std::find(formats.begin(), formats.end(), arguments.format) == formats.end())
    throw Error(ErrorKind::input, fmt::format("unknown format \"{}\"; {}", arguments.format,
                                              suggestion(arguments.format, formats)));
  const Console console(shared.verbosity());
  note_strange_environment(options.environment, console);
  // Everything is read before anything is stored: a mistake in the last file leaves no half import.
  std::map<std::string, std::vector<ImportedFile>> tables;
  std::vector<std::string> databases;
  std::vector<ReadDecisions> decisions;
  for (const auto& path : arguments.files) {
    auto text = read_file(path);
    const bool is_database = text.starts_with(kDatabaseMark);
    if (arguments.format == "dynamiccl" && !is_database)
      throw Error(ErrorKind::data, path +
                                       ": is no DynamICCL database, as --format dynamiccl says; "
                                       "leave --format out, or name another file");
    if (is_database && (arguments.format == "auto" || arguments.format == "dynamiccl")) {
      databases.push_back(path);
      continue;
    }
    text = decoded_text(text, path);
    const auto format =
        arguments.format == "auto" ? import_format_of(text, path) : arguments.format;
    if (format == "decisions") {
      decisions.push_back(read_leaders_file(path, text));
      continue;
    }
    auto starts = read_starts(format, text, path, options);
    tables[format].push_back({fs::absolute(path).string(), std::move(text), std::move(starts)});
  }
  if (tables.empty()) refuse_options_of_tables(arguments);
  std::vector<ReadRun> runs;
  for (const auto& [format, files] : tables) {
    if (arguments.as_launches) {
      runs.push_back({make_foreign_run(files, format, options), files});
    } else {
      for (const auto& file : files)
        runs.push_back({make_foreign_run({file}, format, options), {file}});
    }
  }
  std::error_code ignored;
  fs::create_directories(fs::absolute(shared.db).parent_path(), ignored);
  Store store(shared.db);
  std::vector<Imported> done;
  for (const auto& run : runs) done.push_back(store_run(store, run, options, console));
  for (const auto& path : databases) merge_database(store, path, done);
  for (const auto& read : decisions) done.push_back(store_decisions(store, shared.db, read));
  fmt::print("{}", render_table(imported_table(done),
                                shared.json ? OutputFormat::json : OutputFormat::text, {},
                                stdout_columns()));
}

}  // namespace

void add_import_verb(CLI::App& app, Shared& shared) {
  auto* verb =
      app.add_subcommand("import",
                         "store tables of nccl-tests, rccl-tests, OSU and IMB or a leader's "
                         "choices, or merge other DynamICCL databases");
  auto arguments = std::make_shared<ImportArguments>();
  auto& options = arguments->options;
  verb->add_option("FILE", arguments->files, "what the programs printed, or databases")->required();
  add_choice_option(*verb, "--format", arguments->format, import_formats(),
                    "what the files are (auto: by what they hold)");
  const auto add_of_tables = [&](const CLI::Option* option) {
    arguments->of_tables.push_back(option);
  };
  add_of_tables(verb->add_option("--environment", options.environment,
                                 "where it was measured, as in bare-metal (unknown)"));
  add_of_tables(
      verb->add_option("--backend", options.backend,
                       "the library: openmpi, mpich, ... (as the file says, nccl or mpi)"));
  add_of_tables(verb->add_option("--operation", options.operation,
                                 "of an old nccl-tests table, which does not name it: all_reduce"));
  add_of_tables(
      verb->add_option("--ranks", options.ranks, "where the file does not say: OSU collectives")
          ->check(CLI::PositiveNumber));
  add_of_tables(verb->add_option(
      "--rank-aggregation", arguments->aggregation,
      "how the times of the ranks became one, and the column of OSU: mean (usual), "
      "max, min"));
  add_of_tables(verb->add_option("--name", options.name, "name of the run (the file's)"));
  add_of_tables(verb->add_flag(
      "--as-launches", arguments->as_launches,
      "the files are repeated launches of one job: one run, with intervals from three"));
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Each file of another program becomes a run; importing it again changes nothing. What one\n"
      "start printed is one launch: no interval, so a comparison of two gives ratios and UNCLEAR.\n"
      "Output of nccl-tests without its end becomes a run that was interrupted.\n"
      "incomplete_cells: what some launch's table has no row of; it counts with those that have.\n"
      "Examples:\n"
      "  dynamiccl import all_reduce.txt --environment bare-metal\n"
      "  dynamiccl import run1.json run2.json run3.json --as-launches\n"
      "  dynamiccl import osu_allreduce.txt --ranks 16 --backend openmpi\n"
      "  dynamiccl import other-machine.sqlite\n"
      "  dynamiccl import /shared/decisions.jsonl");
  verb->callback([arguments, &shared] { run_import(*arguments, shared); });
}

}  // namespace dynamiccl
