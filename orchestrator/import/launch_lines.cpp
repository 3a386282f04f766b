#include "orchestrator/import/launch_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
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

bool is_among(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// "NAME=VALUE", or several with commas between them, into "env.NAME" to value.
void add_assignments(const std::string& text, std::map<std::string, std::string>& settings) {
  std::string* value = nullptr;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.find('=');
    const auto name = part.substr(0, equals);
    if (equals != std::string::npos && steers_library(name)) {
      value = &settings[setting_text(SettingScope::env, name)];
      *value = part.substr(equals + 1);
    } else if (equals != std::string::npos) {
      value = nullptr;
    } else if (value != nullptr) {
      *value += "," + part;  // UCX_TLS=rc,sm
    }
  }
}

/// Settings of libraries that a line makes, as `export NCCL_ALGO=Ring`, `mpirun -x UCX_TLS=tcp` or
/// `mpiexec -genv UCX_TLS tcp`: "env.NAME" and "mca.NAME" to value.
std::map<std::string, std::string> settings_in(const std::vector<std::string>& words) {
  std::map<std::string, std::string> settings;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i + 2 < words.size() && is_among(words[i], {"--mca", "-mca", "--gmca", "-gmca"}))
      settings[setting_text(SettingScope::mca, words[i + 1])] = words[i + 2];
    if (i + 2 < words.size() && is_among(words[i], {"-genv", "-env"}) &&
        steers_library(words[i + 1]))
      settings[setting_text(SettingScope::env, words[i + 1])] = words[i + 2];
    std::string word = words[i];
    std::erase_if(word, [](char letter) { return letter == '"' || letter == '\''; });
    if (word.ends_with(';')) word.pop_back();
    // --env=NAME=VALUE, and -xNAME=VALUE as one word.
    if (word.starts_with("--"))
      word.erase(0, word.find('=') == std::string::npos ? 0 : word.find('=') + 1);
    else if (word.starts_with("-x") || word.starts_with("-e"))
      word.erase(0, 2);
    add_assignments(word, settings);
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

/// What starts a program among the words before it.
bool is_launcher(const std::string& word) {
  return is_among(base_name(word), {"mpirun", "mpiexec", "mpiexec.hydra", "mpirun_rsh", "orterun",
                                    "prun", "prterun", "srun", "ibrun", "aprun", "jsrun", "flux"});
}

/// Where ranks are placed by a launcher's option, "--bind-to" of "-bind-to"; "" for others.
std::string placing_option(const std::string& word) {
  const auto first = word.find_first_not_of('-');
  if (first == 0 || first == std::string::npos) return "";
  auto name = word.substr(first, word.find('=') - first);
  std::replace(name.begin(), name.end(), '_', '-');
  return is_among(name, {"bind-to", "map-by", "rank-by", "cpu-bind", "mem-bind", "gpu-bind",
                         "distribution", "cpus-per-task", "gpus-per-task", "ntasks-per-node",
                         "npernode", "npersocket", "ppn", "mpi", "network"})
             ? "--" + name
             : "";
}

/// A line's words without what a shell's prompt or trace puts before a command, and without where
/// its output goes.
std::vector<std::string> bare_command(const std::vector<std::string>& words) {
  auto begin = words.begin();
  while (begin != words.end() &&
         (begin->find_first_not_of("+$#>%") == std::string::npos || begin->ends_with('$')))
    ++begin;
  const auto end = std::find_if(begin, words.end(), [](const std::string& word) {
    return word == "|" || word == "&" || word == "&&" || word.starts_with('>') ||
           word.starts_with("2>") || word.starts_with("1>") || word.starts_with("&>");
  });
  return {begin, end};
}

/// Whether a benchmark program is started by them: it is the first word behind settings, or a
/// launcher stands before it.
bool starts_program(const std::vector<std::string>& words) {
  const auto program = std::find_if(words.begin(), words.end(), options_of_rows);
  const auto sets = [](const std::string& word) { return word.find('=') != std::string::npos; };
  return program != words.end() && (std::all_of(words.begin(), program, sets) ||
                                    std::any_of(words.begin(), program, is_launcher));
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
      const auto placing = placing_option(word);
      if (const auto equals = word.find('='); !placing.empty() && equals != std::string::npos)
        options[placing] = word.substr(equals + 1);
      else if (!placing.empty() && i + 1 < command.size())
        options[placing] = command[++i];
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

bool steers_library(std::string_view name) {
  return (is_recorded_variable(name) || name.starts_with("I_MPI_") || name.starts_with("MV2_")) &&
         !name.starts_with("SLURM_") && !name.starts_with("DYNAMICCL_");
}

std::optional<int> processes_in(const std::string& line) {
  const auto words = words_of(line);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_launcher(words[i])) continue;
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
  goes_on_.insert(goes_on_.end(), words.begin(), words.end());
  if (!goes_on_.empty() && goes_on_.back() == "\\")
    goes_on_.pop_back();
  else
    read_command(bare_command(std::exchange(goes_on_, {})));
}

void LaunchLines::read_command(const std::vector<std::string>& words) {
  for (auto& [name, value] : settings_in(words)) {
    if (words.front() == "export") exported_[name] = value;
    settings_[name] = value;
  }
  // The last command is the one that prints.
  auto options = options_in(words);
  const bool starts = starts_program(words);
  if (starts || !options.empty())
    std::erase_if(settings_, [](const auto& setting) { return setting.first.starts_with('-'); });
  settings_.merge(options);
  if (starts) command_ = join(recorded_command(words), " ");
}

void LaunchLines::begin(ForeignStart& start) {
  start.command = std::exchange(command_, "");
  start.banner = std::exchange(banner_, "");
  if (processes_) start.source["processes_by_line"] = processes_line_;
  for (const auto& [setting, value] : std::exchange(settings_, exported_))
    add_setting(start, setting, value);
}

void add_setting(ForeignStart& start, const std::string& setting, const std::string& value) {
  const auto found = find_setting(setting);
  auto recorded = value;
  if (found && found->scope == SettingScope::env) recorded = recorded_value(found->name, value);
  if (found && found->scope == SettingScope::mca)
    recorded = recorded_value("OMPI_MCA_" + found->name, value);
  start.settings[setting] = recorded;
  if (recorded != kRedacted) return;
  start.hidden[setting] = value;
  start.warnings.push_back(
      fmt::format("{} is no setting that is known, so its value is not stored: it tells starts of "
                  "one import apart, and no imports of their own",
                  setting));
}

}  // namespace dynamiccl
