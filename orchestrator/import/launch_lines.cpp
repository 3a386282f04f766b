#include "orchestrator/import/launch_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/environment_probe.hpp"

namespace dynamiccl {
namespace {

/// More than any job has.
constexpr double kMostLaunched = 1e7;

std::optional<int> process_count(const std::string& word) {
  const auto value = number_of(word);
  if (!value || *value < 1 || *value > kMostLaunched || *value != std::floor(*value))
    return std::nullopt;
  return static_cast<int>(*value);
}

/// The value of an option among words: "-np 2", "--ntasks=2", "-n2".
std::optional<int> option_in(const std::vector<std::string>& words,
                             std::initializer_list<std::string_view> names) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    for (const auto name : names) {
      if (words[i] == name && i + 1 < words.size()) {
        if (const auto value = process_count(words[i + 1])) return value;
      } else if (words[i].starts_with(std::string(name) + "=")) {
        if (const auto value = process_count(words[i].substr(name.size() + 1))) return value;
      } else if (name.size() == 2 && words[i].size() > 2 && words[i].starts_with(name)) {
        if (const auto value = process_count(words[i].substr(2))) return value;
      }
    }
  }
  return std::nullopt;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Settings of libraries that a line makes, as `export NCCL_ALGO=Ring` or `mpirun -x UCX_TLS=tcp`:
/// "env.NAME" to value.
std::map<std::string, std::string> settings_in(const std::vector<std::string>& words) {
  static constexpr std::array<std::string_view, 9> kPrefixes{
      "NCCL_", "RCCL_", "OMPI_MCA_", "UCX_", "FI_", "MPICH_", "I_MPI_", "MV2_", "OMP_"};
  std::map<std::string, std::string> settings;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if ((word == "--mca" || word == "-mca") && i + 2 < words.size())
      settings[setting_text(SettingScope::mca, words[i + 1])] = words[i + 2];
    if (word.starts_with("--export=")) word.erase(0, 9);
    for (const auto& part : split(word, ',')) {
      const auto equals = part.find('=');
      if (equals == std::string::npos) continue;
      const auto name = part.substr(0, equals);
      if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                      [&](std::string_view prefix) { return name.starts_with(prefix); }))
        settings[setting_text(SettingScope::env, name)] =
            recorded_value(name, part.substr(equals + 1));
    }
  }
  return settings;
}

/// The options of a benchmark program that choose rows, or that rows and headings tell, between
/// blanks; nullptr for other programs.
const char* options_of_rows(const std::string& program) {
  const auto name = base_name(program);
  if (name.ends_with("_perf") || name.ends_with("_perf_mpi"))
    return " b minbytes e maxbytes i stepbytes f stepfactor n iters m agg_iters w warmup_iters N "
           "run_cycles c check o op d datatype r root g ngpus t nthreads T timeout J output_file S "
           "report_timestamps C report_cputime G cudagraph p parallel_init ";
  if (name.starts_with("osu_"))
    return " m message-size i iterations x warmup c validation f full d accelerator T type ";
  if (name.starts_with("IMB-"))
    return " npmin msglog msglen msgsize iter iter_policy time mem input include exclude data_type "
           "red_data_type multi map ";
  return nullptr;
}

/// "np=8", "ntasks: 16", "nprocs = 4", and in a banner "8 ranks" and "16 processes".
std::optional<int> named_count(const std::string& line) {
  static const std::set<std::string> names{"np",        "nprocs",    "ntasks",   "#processes",
                                           "processes", "procs",     "ranks",    "tasks",
                                           "nranks",    "num_procs", "num_ranks"};
  std::string spaced;
  for (const char letter : lower_case(line)) {
    const bool sign = letter == '=' || letter == ':' || letter == ',' || letter == ';' ||
                      letter == '(' || letter == ')';
    spaced += sign ? std::string{' ', letter, ' '} : std::string(1, letter);
  }
  const auto words = words_of(spaced);
  const bool banner = std::string_view("=-#*+>").find(trim(line).front()) != std::string_view::npos;
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto name = words[i];
    if (name.starts_with("slurm_")) name.erase(0, 6);
    if (!names.contains(name)) continue;
    if (i + 2 < words.size() && (words[i + 1] == "=" || words[i + 1] == ":")) {
      if (const auto found = process_count(words[i + 2])) return found;
    }
    if (banner && i > 0 && name.size() > 2)
      if (const auto found = process_count(words[i - 1])) return found;
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, std::string> options_in(const std::vector<std::string>& words) {
  const auto command = recorded_command(words);
  std::map<std::string, std::string> options;
  const char* of_rows = nullptr;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const auto& word = command[i];
    if (of_rows == nullptr) {
      of_rows = options_of_rows(word);
      continue;
    }
    if (word.size() < 2 || word[0] != '-' || number_of(word)) continue;
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    std::string value = equals == std::string::npos ? "on" : word.substr(equals + 1);
    if (equals == std::string::npos && i + 1 < command.size() &&
        (!command[i + 1].starts_with('-') || number_of(command[i + 1])))
      value = command[++i];
    const auto bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    if (std::string_view(of_rows).find(" " + bare + " ") == std::string_view::npos)
      options[name] = value;
  }
  return options;
}

std::optional<int> processes_in(const std::string& line) {
  static const std::set<std::string> launchers{"mpirun",  "mpiexec", "mpiexec.hydra", "mpirun_rsh",
                                               "orterun", "prun",    "prterun",       "srun",
                                               "ibrun",   "aprun",   "jsrun",         "flux"};
  const auto words = words_of(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!launchers.contains(base_name(words[i]))) continue;
    // Of another program's start, as of `srun -n 8 hostname`, nothing follows.
    if (words.back() != "\\" && std::none_of(words.begin(), words.end(), options_of_rows))
      return std::nullopt;
    const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        words.end());
    if (const auto all = option_in(rest, {"-np", "--np", "--ntasks", "-n"})) return all;
    const auto nodes = option_in(rest, {"-N", "--nodes"});
    const auto each = option_in(rest, {"--ntasks-per-node", "-ppn", "--npernode"});
    if (nodes && each) return *nodes * *each;
    return std::nullopt;
  }
  return words.empty() ? std::nullopt : named_count(line);
}

void LaunchLines::read(const std::string& line, std::size_t number) {
  if (line.empty()) return;
  if (const auto count = processes_in(line)) {
    processes_ = count;
    processes_line_ = number;
  } else if (line.find("osu_") != std::string::npos && line.find("run") != std::string::npos) {
    processes_.reset();  // another command, which does not say how many
  }
  banner_ = line;
  const auto words = words_of(line);
  for (auto& [name, value] : settings_in(words)) {
    if (line.starts_with("export ")) exported_[name] = value;
    settings_[name] = value;
  }
  auto options = options_in(words);
  // The last command is the one that prints.
  if (!options.empty())
    std::erase_if(settings_, [](const auto& setting) { return setting.first.starts_with('-'); });
  settings_.merge(options);
}

void LaunchLines::begin(ForeignStart& start) {
  start.settings = std::exchange(settings_, exported_);
  start.banner = std::exchange(banner_, "");
  if (processes_) start.source["processes_by_line"] = processes_line_;
  for (const auto& [name, value] : start.settings)
    if (value == kRedacted)
      start.warnings.push_back(
          fmt::format("{} is no setting that is known, so its value is not stored: starts that "
                      "differ in it alone count as launches of one cell",
                      name));
}

}  // namespace dynamiccl
