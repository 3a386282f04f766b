#include "orchestrator/import/foreign_table.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/statistics.hpp"
#include "core/text.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

struct Alias {
  std::string_view theirs;
  std::string_view ours;
};

constexpr std::array kPrograms{
    Alias{"all_reduce", "allreduce"}, Alias{"all_gather", "allgather"},
    Alias{"alltoall", "alltoall"},    Alias{"broadcast", "broadcast"},
    Alias{"reduce", "reduce"},        Alias{"gather", "gather"},
    Alias{"sendrecv", "sendrecv"},    Alias{"reduce_scatter", "reduce_scatter"}};

constexpr std::array kTypes{Alias{"float", "float32"},      Alias{"double", "float64"},
                            Alias{"half", "float16"},       Alias{"MPI_FLOAT", "float32"},
                            Alias{"MPI_DOUBLE", "float64"}, Alias{"MPI_INT", "int32"},
                            Alias{"MPI_CHAR", "char"}};

template <std::size_t N>
std::string translated(const std::array<Alias, N>& table, const std::string& name) {
  for (const auto& alias : table) {
    if (alias.theirs == name) return std::string(alias.ours);
  }
  return name;
}

/// An id in the form of the others that is the same for the same import.
std::string uuid_of(const std::string& what) {
  const std::string digest = sha256_hex(what);
  return fmt::format("{}-{}-{}-{}-{}", digest.substr(0, 8), digest.substr(8, 4),
                     digest.substr(12, 4), digest.substr(16, 4), digest.substr(20, 12));
}

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

std::string backend_of(const std::string& format, const ImportOptions& options) {
  if (!options.backend.empty()) return options.backend;
  return format == "osu" ? "mpi" : "nccl";
}

int ranks_of(const ForeignStart& start, const std::string& path, const ImportOptions& options) {
  const int ranks = options.ranks > 0 ? options.ranks : start.ranks.value_or(0);
  if (ranks > 0) return ranks;
  throw Error(
      ErrorKind::input,
      fmt::format("{}: does not say with how many ranks it was measured; give --ranks N", path));
}

/// The protocol that all starts agree in; what they do not say is left out.
nlohmann::json protocol_of(const std::vector<const ForeignStart*>& starts,
                           const ImportOptions& options) {
  nlohmann::json protocol = {{"rank_aggregation", name_of(options.aggregation)}};
  const ForeignStart& first = *starts.front();
  if (first.warmup) protocol["warmup"] = *first.warmup;
  if (first.iterations) protocol["iterations"] = *first.iterations;
  if (first.verify) protocol["verify"] = *first.verify;
  return protocol;
}

std::string cell_key(const ForeignRow& row) {
  return fmt::format("imported {} {} {} {} {}", row.collective, row.size_bytes, row.datatype,
                     row.in_place, nlohmann::json(row.knobs).dump());
}

/// Builds the run start by start.
class RunBuilder {
 public:
  RunBuilder(std::string format, const ImportOptions& options)
      : format_(std::move(format)), options_(options) {}

  void add(const ForeignStart& start, const std::string& path) {
    const std::string group = add_group(ranks_of(start, path, options_));
    std::vector<std::string> order;
    std::map<std::string, std::vector<const ForeignRow*>> by_cell;
    std::set<std::string> operations;
    for (const auto& row : start.rows) {
      const auto cell = add_cell(group, row);
      if (by_cell[cell].empty()) order.push_back(cell);
      by_cell[cell].push_back(&row);
      operations.insert(row.collective);
    }
    ForeignLaunch& launch = launch_for(group, operations);
    if (launch.argv.empty()) launch.argv = start.argv;
    launch.environment_json = start.environment.dump();
    for (const auto& cell : order)
      launch.figures.push_back(figure_of(cell, start, by_cell.at(cell)));
  }

  ForeignRun take() { return std::move(run_); }

 private:
  std::string add_group(int ranks) {
    GroupInfo group;
    group.environment = options_.environment;
    group.backend = backend_of(format_, options_);
    group.architecture = "ring";
    group.ranks = ranks;
    group.id =
        stable_id(fmt::format("imported {} {} {}", group.environment, group.backend, group.ranks));
    if (groups_.insert(group.id).second) run_.groups.push_back(group);
    return group.id;
  }

  std::string add_cell(const std::string& group, const ForeignRow& row) {
    CellInfo cell;
    cell.id = stable_id(group + "\n" + cell_key(row));
    cell.group_id = group;
    cell.collective = row.collective;
    cell.size_bytes = row.size_bytes;
    cell.datatype = row.datatype;
    cell.algorithm = "library";
    cell.in_place = row.in_place;
    cell.knobs_json = nlohmann::json(row.knobs).dump();
    if (cells_.insert(cell.id).second) run_.cells.push_back(cell);
    return cell.id;
  }

  /// The k-th start of an operation is in block k, beside the k-th starts of the others.
  ForeignLaunch& launch_for(const std::string& group, const std::set<std::string>& operations) {
    int block = 0;
    for (const auto& operation : operations) block = std::max(block, starts_[group + operation]);
    for (const auto& operation : operations) starts_[group + operation] = block + 1;
    for (auto& launch : run_.launches) {
      if (launch.group_id == group && launch.block == block) return launch;
    }
    ForeignLaunch launch;
    launch.group_id = group;
    launch.block = block;
    run_.launches.push_back(std::move(launch));
    return run_.launches.back();
  }

  static ForeignFigure figure_of(const std::string& cell, const ForeignStart& start,
                                 const std::vector<const ForeignRow*>& rows) {
    ForeignFigure figure;
    figure.cell_id = cell;
    figure.calls = start.calls;
    figure.n = static_cast<std::int64_t>(rows.size());
    std::vector<double> times;
    auto reported = nlohmann::ordered_json::array();
    for (const auto* row : rows) {
      times.push_back(row->time_us);
      figure.wrong += row->wrong.value_or(0);
      reported.push_back(row->reported);
    }
    figure.time_us = median(std::move(times));
    figure.reported_json = rows.size() == 1 ? reported[0].dump() : reported.dump();
    if (figure.wrong > 0) {
      figure.status = CellStatus::failed;
      figure.reason = fmt::format("the table reports {} wrong values", figure.wrong);
    }
    return figure;
  }

  std::string format_;
  const ImportOptions& options_;
  ForeignRun run_;
  std::set<std::string> groups_;
  std::set<std::string> cells_;
  std::map<std::string, int> starts_;
};

}  // namespace

std::string collective_of_program(const std::string& program) {
  std::string name = program;
  if (const auto slash = name.rfind('/'); slash != std::string::npos) name.erase(0, slash + 1);
  for (const char* suffix : {"_mpi", "_perf"}) {
    if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
  }
  return translated(kPrograms, name);
}

std::string datatype_of(const std::string& name) { return translated(kTypes, name); }

std::vector<std::string> clean_lines(const std::string& text) {
  static const std::regex tag(R"(^\[\d+,\d+\]<std(out|err)>:)");
  std::vector<std::string> lines;
  for (const auto& line : split(text, '\n')) {
    const auto trimmed = std::string(trim(line));
    lines.push_back(trimmed.starts_with('[')
                        ? std::string(trim(std::regex_replace(trimmed, tag, "")))
                        : trimmed);
  }
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::optional<double> number_of(const std::string& word) {
  double value = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) return std::nullopt;
  return value;
}

ForeignRun make_foreign_run(const std::vector<ImportedFile>& files, const std::string& format,
                            const ImportOptions& options) {
  RunBuilder builder(format, options);
  std::vector<const ForeignStart*> starts;
  std::string contents;
  auto sources = nlohmann::ordered_json::array();
  for (const auto& file : files) {
    contents += sha256_hex(file.text) + "\n";
    for (const auto& start : file.starts) {
      builder.add(start, file.path);
      starts.push_back(&start);
      auto source = start.source;
      source["file"] = fs::path(file.path).filename().string();
      sources.push_back(std::move(source));
    }
  }
  DYN_ASSERT(!starts.empty(), "a reader of tables gives at least one start");
  ForeignRun run = builder.take();
  run.run.id = uuid_of(fmt::format("{}{} {} {} {} {} {}", contents, format, options.environment,
                                   backend_of(format, options), options.operation, options.ranks,
                                   name_of(options.aggregation)));
  const std::string& path = files.front().path;
  run.run.name = options.name.empty() ? fs::path(path).stem().string() : options.name;
  run.run.spec_path = path;
  run.run.spec_text = fmt::format("# imported from {}: {}\n", format, run.run.id);
  run.run.argv = starts.front()->argv;
  run.run.tool_version = format == "osu" ? "OSU micro-benchmarks" : "nccl-tests";
  if (const auto version = starts.front()->source.find("version");
      version != starts.front()->source.end() && version->is_string()) {
    run.run.tool_version += " " + version->get<std::string>();
  }
  run.run.protocol_json = protocol_of(starts, options).dump();
  nlohmann::json hosts = nlohmann::json::object();
  if (const auto devices = starts.front()->source.find("devices");
      devices != starts.front()->source.end()) {
    hosts["devices"] = *devices;
  }
  run.run.host_json = hosts.dump();
  run.started_utc = time_of_file(path);
  run.format = format;
  run.source = path;
  run.sha256 = files.size() == 1 ? sha256_hex(files.front().text) : sha256_hex(contents);
  run.source_json =
      nlohmann::ordered_json{
          {"starts", std::move(sources)},
          {"assumed",
           {fmt::format("times are the {} over the ranks", name_of(options.aggregation)),
            "started when the file was written"}}}
          .dump();
  run.barrier = format == "osu" ? "MPI_Barrier between calls" : "";
  run.aggregation = options.aggregation;
  return run;
}

}  // namespace dynamiccl
