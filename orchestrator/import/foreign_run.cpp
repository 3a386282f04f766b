#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "profiles/detect/probes/environment_probe.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

/// So many printed times are never all equal in two launches; fewer can be by chance.
constexpr std::size_t kRowsThatTellACopy = 8;

std::string time_of_file(const std::string& path) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  const auto now = fs::file_time_type::clock::now();
  const auto age = error ? fs::file_time_type::duration::zero() : now - written;
  const auto at = std::chrono::system_clock::now() -
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(age);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.000Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(at)));
}

/// What every row of a start prints; empty for a start too short to know it again.
std::string figures_of(const ForeignStart& start) {
  if (start.rows.size() < kRowsThatTellACopy) return "";
  std::string figures;
  for (const auto& row : start.rows) figures += row.collective + row.reported.dump() + "\n";
  return figures;
}

/// A file's lines without what collectors put around them: the same output logged twice is a copy.
std::string bare_text(const ImportedFile& file) {
  std::string text;
  for (const auto& line : log_lines(file.text, file.path)) {
    const auto trimmed = trim(line.text);
    if (!trimmed.empty()) text.append(trimmed).append("\n");
  }
  return text;
}

/// Intervals are over independent launches: a copy would only make them narrower.
void refuse_copies(const std::vector<ImportedFile>& files) {
  constexpr std::string_view kWhy =
      "a copy is no independent launch, it would only make the intervals narrower; give the "
      "output of each launch once";
  std::map<std::string, std::string> texts;
  std::map<std::string, std::string> starts;
  for (const auto& file : files) {
    const auto text = sha256_hex(bare_text(file));
    if (const auto [first, is_new] = texts.emplace(text, file.path); !is_new) {
      throw Error(ErrorKind::input, first->second == file.path
                                        ? fmt::format("{} is given twice: {}", file.path, kWhy)
                                        : fmt::format("{} and {} hold the same output: {}",
                                                      first->second, file.path, kWhy));
    }
    for (const auto& start : file.starts) {
      const auto figures = figures_of(start);
      if (figures.empty()) continue;
      const auto [first, is_new] = starts.emplace(figures, file.path);
      if (is_new) continue;
      const auto where = first->second == file.path ? file.path + " holds one start twice"
                                                    : fmt::format("{} and {} hold the same start",
                                                                  first->second, file.path);
      throw Error(ErrorKind::input,
                  fmt::format("{}, equal in all {} rows: {}", where, start.rows.size(), kWhy));
    }
  }
}

/// A start, where it was printed, and what tells starts of as many ranks apart.
struct PlacedStart {
  const ForeignStart* start = nullptr;
  const ImportedFile* file = nullptr;
  int ranks = 0;
  std::string backend;
  std::set<std::string> operations;
  std::size_t job = 0;
  std::map<std::string, std::string> knobs;  ///< what tells it from other starts of its job
};

/// A row's own knobs and those of its start.
std::map<std::string, std::string> knobs_of(const PlacedStart& start, const ForeignRow& row) {
  auto knobs = row.knobs;
  knobs.insert(start.knobs.begin(), start.knobs.end());
  return knobs;
}

std::string operation_of(const PlacedStart& start, const ForeignRow& row) {
  return fmt::format("{} {} {}", row.collective, row.datatype,
                     nlohmann::json(knobs_of(start, row)).dump());
}

/// The option that is to blame where a table's figures are of another collective or other ranks.
void refuse_contradiction(const PlacedStart& start, const std::string& format,
                          const ImportOptions& options) {
  if (!format.starts_with("nccl-tests")) return;
  std::size_t told = 0;
  std::string first;
  for (const auto& row : start.start->rows) {
    const auto why = contradiction(row, start.ranks);
    if (why.empty()) continue;
    if (told++ == 0) first = why;
  }
  // One odd figure is the machine's; that most rows have it is what they are of.
  if (told == 0 || 2 * told < start.start->rows.size()) return;
  std::string options_told;
  if (!options.operation.empty()) options_told += " --operation " + options.operation;
  if (options.ranks > 0) options_told += fmt::format(" --ranks {}", options.ranks);
  throw Error(
      ErrorKind::input,
      fmt::format("{}:{}: the table's figures contradict {}: {}; give the --operation and --ranks "
                  "that it was measured with",
                  start.file->path, start.start->line,
                  options_told.empty() ? "what the file says of operation and ranks"
                                       : "the options" + options_told,
                  first));
}

/// What starts of one table differ in (buffers, graphs, settings under banners) tells them apart.
void find_knobs(std::vector<PlacedStart>& starts) {
  const auto table_of = [](const PlacedStart& start) {
    std::set<std::string> operations;
    for (const auto& row : start.start->rows)
      operations.insert(fmt::format("{} {}", row.collective, row.datatype));
    return fmt::format("{} {} {}", start.ranks, start.backend,
                       join({operations.begin(), operations.end()}, ","));
  };
  std::map<std::string, std::vector<PlacedStart*>> tables;
  for (auto& start : starts) tables[table_of(start)].push_back(&start);
  for (auto& [name, same] : tables) {
    std::set<std::string> names;
    for (const auto* start : same)
      for (const auto& [setting, value] : start->start->settings) names.insert(setting);
    for (const auto& setting : names) {
      std::set<std::string> values;
      std::map<std::string, std::size_t> hidden;  // by the order in which they appear
      const auto value_of = [&](const PlacedStart& start) {
        if (const auto not_stored = start.start->hidden.find(setting);
            not_stored != start.start->hidden.end())
          return fmt::format("value {} (not stored)",
                             hidden.emplace(not_stored->second, hidden.size() + 1).first->second);
        const auto found = start.start->settings.find(setting);
        return found == start.start->settings.end() ? std::string("unset") : found->second;
      };
      for (const auto* start : same) values.insert(value_of(*start));
      if (values.size() < 2) continue;
      for (auto* start : same) start->knobs[setting] = value_of(*start);
    }
  }
}

std::vector<PlacedStart> placed(const std::vector<ImportedFile>& files, const std::string& format,
                                const ImportOptions& options) {
  std::vector<PlacedStart> starts;
  for (const auto& file : files) {
    for (const auto& start : file.starts) {
      PlacedStart one{&start,
                      &file,
                      settled_ranks(start, file.path, format, options),
                      settled_backend(start, file.path, format, options),
                      {},
                      starts.size(),
                      {}};
      refuse_contradiction(one, format, options);
      starts.push_back(std::move(one));
    }
  }
  find_knobs(starts);
  for (auto& one : starts)
    for (const auto& row : one.start->rows) one.operations.insert(operation_of(one, row));
  return starts;
}

/// Starts of one job have as many ranks, one backend and, if only by way of others, an operation in
/// common: so every cell belongs to one job. A job is named by its first start.
void find_jobs(std::vector<PlacedStart>& starts) {
  std::map<std::tuple<int, std::string, std::string>, std::size_t> job_of;
  for (auto& start : starts) {
    for (const auto& operation : start.operations) {
      const auto [known, is_new] =
          job_of.emplace(std::tuple(start.ranks, start.backend, operation), start.job);
      const std::size_t theirs = known->second;
      if (is_new || theirs == start.job) continue;
      const std::size_t first = std::min(theirs, start.job);
      const std::size_t later = std::max(theirs, start.job);
      for (auto& [key, job] : job_of) job = job == later ? first : job;
      for (auto& other : starts) other.job = other.job == later ? first : other.job;
    }
  }
}

/// Builds the run start by start.
class RunBuilder {
 public:
  explicit RunBuilder(const ImportOptions& options) : options_(options) {}

  void add(const std::vector<PlacedStart>& starts) {
    for (const auto& start : starts) operations_[start.job].merge(std::set(start.operations));
    const ImportedFile* file = nullptr;
    int first_block = 0;
    for (const auto& start : starts) {
      // What one file holds was measured at the same time: the next one's blocks come behind.
      if (start.file != file) {
        file = start.file;
        for (const auto& [job, next] : next_block_) first_block = std::max(first_block, next);
      }
      add_launch(start, first_block);
    }
    note_missing();
  }

  ForeignRun take() { return std::move(run_); }

 private:
  void add_launch(const PlacedStart& placed, int first_block) {
    const ForeignStart& start = *placed.start;
    ForeignLaunch launch;
    launch.group_id = add_group(placed);
    int& next = next_block_[placed.job];
    launch.block = std::max(next, first_block);
    next = launch.block + 1;
    launch.argv = start.argv;
    launch.environment_json = start.environment.dump();
    std::vector<std::string> order;
    std::map<std::string, std::vector<const ForeignRow*>> by_cell;
    for (const auto& row : start.rows) {
      const auto cell = add_cell(launch.group_id, placed, row);
      if (by_cell[cell].empty()) order.push_back(cell);
      by_cell[cell].push_back(&row);
    }
    for (const auto& cell : order)
      launch.figures.push_back(figure_of(cell, start, by_cell.at(cell)));
    run_.launches.push_back(std::move(launch));
    files_.push_back(fs::path(placed.file->path).filename().string());
  }

  std::string add_group(const PlacedStart& start) {
    const auto& operations = operations_.at(start.job);
    GroupInfo group;
    group.environment = options_.environment;
    group.backend = start.backend;
    group.architecture = "ring";
    group.ranks = start.ranks;
    group.id =
        stable_id(fmt::format("imported {} {} {}\n{}", group.environment, group.backend,
                              group.ranks, join({operations.begin(), operations.end()}, "\n")));
    if (groups_.insert(group.id).second) run_.groups.push_back(group);
    return group.id;
  }

  std::string add_cell(const std::string& group, const PlacedStart& start, const ForeignRow& row) {
    CellInfo cell;
    cell.id = stable_id(
        fmt::format("{}\n{} {} {}", group, operation_of(start, row), row.size_bytes, row.in_place));
    cell.group_id = group;
    cell.collective = row.collective;
    cell.size_bytes = row.size_bytes;
    cell.datatype = row.datatype;
    cell.algorithm = "library";
    cell.in_place = row.in_place;
    cell.knobs_json = nlohmann::json(knobs_of(start, row)).dump();
    if (cells_.insert(cell.id).second) run_.cells.push_back(cell);
    return cell.id;
  }

  /// A cell that other launches of its group have: a launch without its row did not measure it,
  /// which says nothing against theirs.
  void note_missing() {
    for (std::size_t i = 0; i < run_.launches.size(); ++i) {
      auto& launch = run_.launches[i];
      std::set<std::string> printed;
      for (const auto& figure : launch.figures) printed.insert(figure.cell_id);
      for (const auto& cell : run_.cells) {
        if (cell.group_id != launch.group_id || printed.contains(cell.id)) continue;
        ForeignFigure figure;
        figure.cell_id = cell.id;
        figure.status = CellStatus::interrupted;
        figure.reason = files_[i] + " has no row of it";
        figure.n = 0;
        launch.figures.push_back(std::move(figure));
      }
    }
  }

  /// Both programs compare all that a rank has. At least one: of a datatype that is not ours the
  /// number is not known.
  static std::uint64_t elements_of(const ForeignRow& row) {
    const auto type = find_named<DataType>(row.datatype);
    return std::max<std::uint64_t>(1, type ? row.size_bytes / element_bytes(*type) : 1);
  }

  static ForeignFigure figure_of(const std::string& cell, const ForeignStart& start,
                                 const std::vector<const ForeignRow*>& rows) {
    ForeignFigure figure;
    figure.cell_id = cell;
    figure.calls = rows.front()->calls.value_or(start.calls);
    figure.n = static_cast<std::int64_t>(rows.size());
    std::vector<double> times;
    double resolution_us = 0;
    std::string wrong_reason;
    auto reported = nlohmann::ordered_json::array();
    for (const auto* row : rows) {
      times.push_back(row->time_us);
      resolution_us = std::max(resolution_us, row->resolution_us);
      figure.wrong += row->wrong.value_or(0);
      if (row->wrong) figure.checked += elements_of(*row);
      if (!row->wrong_reason.empty()) wrong_reason = row->wrong_reason;
      reported.push_back(row->reported);
    }
    figure.time_us = median(std::move(times));
    figure.resolution_us = resolution_us;
    figure.reported_json = rows.size() == 1 ? reported[0].dump() : reported.dump();
    if (figure.wrong > 0) {
      figure.status = CellStatus::failed;
      figure.reason = wrong_reason.empty()
                          ? fmt::format("the table reports {} wrong values", figure.wrong)
                          : wrong_reason;
    }
    return figure;
  }

  const ImportOptions& options_;
  ForeignRun run_;
  std::vector<std::string> files_;                           ///< of the launches, by name
  std::map<std::size_t, std::set<std::string>> operations_;  ///< of each job
  std::map<std::size_t, int> next_block_;                    ///< of each job
  std::set<std::string> groups_;
  std::set<std::string> cells_;
};

/// The protocol that all starts agree in; what they do not say is left out.
nlohmann::json protocol_of(const std::vector<PlacedStart>& starts, const ImportOptions& options) {
  nlohmann::json protocol = {{"rank_aggregation", name_of(options.aggregation)}};
  const auto add = [&](const char* name, auto member) {
    const auto& first = starts.front().start->*member;
    const bool agreed = std::all_of(starts.begin(), starts.end(), [&](const PlacedStart& one) {
      return one.start->*member == first;
    });
    if (first && agreed) protocol[name] = *first;
  };
  add("warmup", &ForeignStart::warmup);
  add("iterations", &ForeignStart::iterations);
  add("verify", &ForeignStart::verify);
  return protocol;
}

nlohmann::ordered_json sources_of(const std::vector<PlacedStart>& starts) {
  auto sources = nlohmann::ordered_json::array();
  for (const auto& one : starts) {
    auto source = one.start->source;
    if (!one.start->cut_off.empty()) source["cut_off"] = one.start->cut_off;
    if (!one.start->left_out.empty()) source["left_out"] = one.start->left_out;
    if (!one.start->warnings.empty()) source["warnings"] = one.start->warnings;
    if (!one.start->settings.empty()) source["settings"] = one.start->settings;
    if (one.start->line > 0) source["line"] = one.start->line;
    source["file"] = fs::path(one.file->path).filename().string();
    sources.push_back(std::move(source));
  }
  return sources;
}

/// What the first start says of program and machine.
void add_origin(RunInfo& run, const ForeignStart& start, const std::string& format) {
  run.argv = start.argv;
  run.tool_version = format == "osu"   ? "OSU micro-benchmarks"
                     : format == "imb" ? "Intel MPI Benchmarks"
                                       : start.source.value("suite", "nccl-tests");
  if (const auto version = start.source.find("version");
      version != start.source.end() && version->is_string()) {
    run.tool_version += " " + version->get<std::string>();
  }
  nlohmann::json hosts = nlohmann::json::object();
  if (const auto devices = start.source.find("devices"); devices != start.source.end())
    hosts["devices"] = *devices;
  run.host_json = hosts.dump();
}

/// Of starts that are taken for launches of one job: what their command lines say differently,
/// which no knob tells; "" = nothing.
std::string commands_that_differ(const std::vector<const PlacedStart*>& starts) {
  std::set<std::string> commands;
  for (const auto* start : starts) {
    const auto& command =
        start->start->argv.empty() ? start->start->command : join(start->start->argv, " ");
    // What no line tells may be the same.
    if (!command.empty()) commands.insert(command);
  }
  if (commands.size() < 2) return "";
  return fmt::format(
      "launches of one job are what was started as \"{}\" and \"{}\"{}, which is not the same "
      "command",
      *commands.begin(), *std::next(commands.begin()),
      commands.size() > 2 ? fmt::format(" and in {} other ways", commands.size() - 2) : "");
}

}  // namespace

std::vector<std::string> import_warnings(const std::vector<ImportedFile>& files,
                                         const std::string& format, const ImportOptions& options) {
  std::vector<std::string> told;
  for (const auto& file : files) {
    for (const auto& start : file.starts) {
      for (const auto& warning : start.warnings)
        told.push_back(fmt::format("{}: {}", file.path, warning));
      if (!start.left_out.empty())
        told.push_back(fmt::format(
            "{}: {} here: {}", file.path,
            start.left_out.size() == 1
                ? "1 test is left out, which has no equal"
                : fmt::format("{} tests are left out, which have no equal", start.left_out.size()),
            join(start.left_out, ", ")));
    }
  }
  const auto starts = placed(files, format, options);
  std::map<std::string, std::vector<const PlacedStart*>> repeats;
  std::map<std::string, std::set<std::string>> apart;
  for (const auto& start : starts) {
    repeats[fmt::format("{} {} {}", start.ranks, start.backend,
                        join({start.operations.begin(), start.operations.end()}, "\n"))]
        .push_back(&start);
    for (const auto& [setting, value] : start.knobs) apart[setting].insert(value);
  }
  // Of one file, what is not meant to be repeats is; of several, what is meant to be is not.
  if (files.size() > 1)
    for (const auto& [setting, values] : apart)
      told.push_back(
          fmt::format("the files differ in {} ({}), so their starts are cells of their "
                      "own, and no launches of one",
                      setting, join({values.begin(), values.end()}, ", ")));
  for (const auto& [name, same] : repeats) {
    if (const auto differ = commands_that_differ(same); !differ.empty()) told.push_back(differ);
    std::map<std::string, std::vector<const PlacedStart*>> by_file;
    for (const auto* start : same) by_file[start->file->path].push_back(start);
    for (const auto& [path, of_file] : by_file) {
      if (of_file.size() < 2) continue;
      std::vector<std::string> where;
      for (const auto* start : of_file)
        where.push_back(start->start->banner.empty()
                            ? fmt::format("line {}", start->start->line)
                            : fmt::format("line {} below \"{}\"", start->start->line,
                                          start->start->banner.substr(0, 60)));
      told.push_back(fmt::format(
          "{}: {} starts of {} over {} ranks are taken for repeated launches of one job, as "
          "nothing that is read here tells them apart: {}. Import them as files of their own where "
          "they are of different jobs",
          path, of_file.size(), of_file.front()->start->rows.front().collective,
          of_file.front()->ranks, join(where, "; ")));
    }
  }
  return told;
}

ForeignRun make_foreign_run(const std::vector<ImportedFile>& files, const std::string& format,
                            const ImportOptions& options) {
  refuse_copies(files);
  if (carries_password(options.name))
    throw Error(ErrorKind::input,
                "--name: the URL in it gives a password or token before \"@\", and a run's name is "
                "stored and shown as it is: leave them out");
  std::string contents;
  for (const auto& file : files) contents += sha256_hex(file.text) + "\n";
  auto starts = placed(files, format, options);
  DYN_ASSERT(!starts.empty(), "a reader of tables gives at least one start");
  find_jobs(starts);
  RunBuilder builder(options);
  builder.add(starts);
  ForeignRun run = builder.take();
  run.run.id = id_of_import(fmt::format(
      "{}{} {} {} {} {} {}", contents, format, options.environment, starts.front().backend,
      options.operation, options.ranks, name_of(options.aggregation)));
  const std::string& path = files.front().path;
  run.run.name = options.name.empty() ? fs::path(path).stem().string() : options.name;
  run.run.spec_path = path;
  run.run.spec_text = fmt::format("# imported from {}: {}\n", format, run.run.id);
  add_origin(run.run, *starts.front().start, format);
  run.run.protocol_json = protocol_of(starts, options).dump();
  run.started_utc = time_of_file(path);
  run.format = format;
  run.source = path;
  run.sha256 = files.size() == 1 ? sha256_hex(files.front().text) : sha256_hex(contents);
  run.source_json =
      nlohmann::ordered_json{
          {"starts", sources_of(starts)},
          {"assumed",
           {fmt::format("times are the {} over the ranks", name_of(options.aggregation)),
            "started when the file was written"}}}
          .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  run.barrier = format == "osu" ? "MPI_Barrier between calls" : "";
  run.aggregation = options.aggregation;
  return run;
}

}  // namespace dynamiccl
