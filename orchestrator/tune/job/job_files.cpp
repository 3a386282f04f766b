#include "orchestrator/tune/job/job_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/tune/job/job_words.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "tuner/export/export.hpp"
#include "tuner/job/mpi_space.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConf = "/nccl.conf";
constexpr const char* kTable = "/nccl.table";
constexpr const char* kRows = "/table.json";
/// In the table's provenance, of what was judged by the command's whole time.
constexpr const char* kJudged = "judged";
constexpr const char* kWhole = "whole command";
/// Says in nccl.conf what the file itself cannot set.
constexpr const char* kPreload = "# In the environment of every rank: LD_PRELOAD=";

std::string read_whole(const std::string& path) {
  require_whole_file(path);
  auto text = read_file(path);
  if (!text)
    throw Error(ErrorKind::input,
                path + ": cannot be read; `dynamiccl tune --out FOLDER -- COMMAND` writes it");
  return *std::move(text);
}

/// Later versions of a table are newer ones.
std::uint64_t next_epoch(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return 1;
  try {
    return read_table(path).epoch + 1;
  } catch (const Error&) {
    return 1;  // damaged: it is replaced
  }
}

/// The launch settings need a row where no call was set.
TableEntry launch_row(const JobTuningResult& result) {
  const MainTraffic traffic = main_traffic(result.observed.mix).value_or(MainTraffic{});
  TableEntry entry;
  entry.key = {result.facts.regime.id,
               {traffic.collective, SizeBin::of(traffic.size), result.facts.ranks,
                result.facts.nodes, Architecture::ring, result.facts.library}};
  entry.size = traffic.size;
  entry.setting.launch_knobs = result.choice.knobs;
  for (const auto& [name, value] : result.choice.variables)
    if (result.choice.knobs.empty())
      entry.setting.launch_knobs[setting_text(SettingScope::env, name)] = value;
  entry.arm = result.arm;
  TableEvidence& evidence = entry.evidence;
  evidence.default_us = result.default_us.value_or(0);
  evidence.tuned_us = result.chosen_us.value_or(0);
  evidence.launches = static_cast<int>(result.pairs);
  evidence.verdict = name_of(result.verdict);
  if (!result.ratio) return entry;
  evidence.ratio = result.ratio->value;
  if (const auto& interval = result.ratio->interval; interval) {
    evidence.ratio_low = interval->low;
    evidence.ratio_high = interval->high;
  }
  return entry;
}

}  // namespace

std::string preload_of(const JobChoice& choice) {
  const auto library = choice.variables.find("LD_PRELOAD");
  return library == choice.variables.end() ? "" : library->second;
}

std::string preload_words(const JobChoice& choice) {
  const std::string preload = preload_of(choice);
  return preload.empty() ? "" : fmt::format("LD_PRELOAD={} ", shell_quote(preload));
}

namespace {

/// The table with what is known of the choice.
ConfigurationTable table_of(const HeldFolder& folder, const JobTuningResult& result,
                            nlohmann::json provenance) {
  ConfigurationTable table;
  table.epoch = next_epoch(folder.held() + kRows);
  table.put_regime({result.facts.regime.id, result.facts.regime.name, result.facts.regime.json});
  for (TableEntry entry : result.choice.entries) {
    // Rows are of the regime, whatever distinguished the launches while they were searched.
    entry.key.regime = result.facts.regime.id;
    table.put(std::move(entry));
  }
  if (result.choice.entries.empty()) table.put(launch_row(result));
  provenance["driver"] = result.facts.driver;
  provenance[result.facts.library == Backend::nccl ? "nccl" : "library"] = result.facts.version();
  if (result.default_us && result.chosen_us)
    provenance["step_us"] = {{"default", *result.default_us}, {"chosen", *result.chosen_us}};
  provenance["setting"] = result.arm;
  provenance["verdict"] = name_of(result.verdict);
  if (result.choice.whole) provenance[kJudged] = kWhole;
  table.provenance = std::move(provenance);
  return table;
}

/// Files that an earlier choice left, of this library or another.
void remove_others(const HeldFolder& folder, const std::vector<std::string>& kept) {
  std::error_code ignored;
  for (const std::string name : {"nccl.conf", "nccl.table", "openmpi.env", "mpich.env", "gloo.env"})
    if (std::find(kept.begin(), kept.end(), name) == kept.end())
      fs::remove(folder.held() + "/" + name, ignored);
}

/// What `export` writes of the table. @returns the path of the file of variables
std::string write_variables(const HeldFolder& folder, const ConfigurationTable& table,
                            Backend library) {
  ExportOptions options;
  options.folder = folder.path();
  const ExportFormat format = library == Backend::openmpi ? ExportFormat::openmpi
                              : library == Backend::mpich ? ExportFormat::mpich
                                                          : ExportFormat::gloo;
  const ExportedFile file = export_table(table, format, options).files.back();
  folder.write(file.name, file.text);
  remove_others(folder, {file.name});
  return folder.path() + "/" + file.name;
}

}  // namespace

std::string write_choice(const HeldFolder& folder, const JobTuningResult& result,
                         const std::string& plugin, nlohmann::json provenance) {
  folder.require_same();
  const ConfigurationTable table = table_of(folder, result, std::move(provenance));
  if (result.facts.library != Backend::nccl) {
    const std::string file = write_variables(folder, table, result.facts.library);
    folder.write(kRows + 1, to_json(table));
    return "set -a; . " + shell_quote(file) + ";";
  }
  std::map<std::string, std::string> conf = result.choice.variables;
  if (!(result.choice.table == CallTable{})) {
    const TableOrigin& origin = result.choice.origin;
    folder.write(kTable + 1,
                 to_text(call_rows(result.choice.table, origin.ranks, origin.nodes), origin.made));
    conf["NCCL_TUNER_PLUGIN"] = plugin;
    conf["DYNAMICCL_TUNER_TABLE"] = folder.path() + kTable;
  }
  remove_others(folder, {kConf + 1, conf.contains("DYNAMICCL_TUNER_TABLE") ? kTable + 1 : ""});
  folder.write(kRows + 1, to_json(table));
  const std::string preload = preload_of(result.choice);
  conf.erase("LD_PRELOAD");
  const std::string text = conf_text(conf, users_conf());
  const auto first = text.find('\n') + 1;
  folder.write(kConf + 1, preload.empty() ? text
                                          : text.substr(0, first) + kPreload + preload + "\n" +
                                                text.substr(first));
  return "NCCL_CONF_FILE=" + folder.path() + kConf;
}

namespace {

/// What a table says of a job that is not NCCL's; nullopt: it is.
std::optional<StoredChoice> read_other(const std::string& folder) {
  std::error_code ignored;
  if (fs::exists(folder + kConf, ignored) || !fs::exists(folder + kRows, ignored))
    return std::nullopt;
  const ConfigurationTable table = read_table(folder + kRows);
  if (table.entries.empty() || table.entries.front().key.task.backend == Backend::nccl)
    return std::nullopt;
  StoredChoice stored;
  stored.choice.entries = table.entries;
  stored.choice.knobs = table.entries.front().setting.launch_knobs;
  stored.choice.variables = launch_variables(stored.choice.knobs, variable_here(kTunablesVariable));
  const auto judged =
      table.provenance.is_object() ? table.provenance.find(kJudged) : table.provenance.end();
  stored.choice.whole = judged != table.provenance.end() && *judged == kWhole;
  stored.provenance = table.provenance;
  return stored;
}

}  // namespace

StoredChoice read_choice(const std::string& folder) {
  if (auto other = read_other(folder)) return *std::move(other);
  StoredChoice stored;
  // A table that no job would load is no part of the choice, and lies there of an earlier one.
  bool has_table = false;
  std::istringstream lines(read_whole(folder + kConf));
  for (std::string line; std::getline(lines, line);) {
    // What follows is the user's own.
    if (line.starts_with("# What NCCL would")) break;
    if (line.starts_with(kPreload))
      stored.choice.variables["LD_PRELOAD"] = line.substr(std::string_view(kPreload).size());
    const auto equals = line.find('=');
    has_table = has_table || line.starts_with("DYNAMICCL_TUNER_TABLE=");
    if ((line.starts_with("NCCL_") || line.starts_with(kOneHostFolder)) &&
        equals != std::string::npos && !line.starts_with("NCCL_TUNER_PLUGIN"))
      stored.choice.variables[line.substr(0, equals)] = line.substr(equals + 1);
  }
  if (has_table) {
    std::string problem;
    const CallTableFile file = call_table_from_text(read_whole(folder + kTable), problem);
    if (!problem.empty())
      throw Error(ErrorKind::data, folder + kTable + ": " + problem + "; tune the job again");
    if (!file.rows.empty()) {
      stored.choice.origin = {file.rows.front().ranks, file.rows.front().nodes, file.origin};
      stored.choice.table =
          table_for(file.rows, stored.choice.origin.ranks, stored.choice.origin.nodes);
    }
  }
  if (stored.choice.is_default())
    throw Error(ErrorKind::data,
                folder + kConf +
                    ": there are no settings of a search in it; tune the job again, or "
                    "choose another place with --out");
  const ConfigurationTable table = read_table(folder + kRows);
  stored.choice.entries = table.entries;
  stored.provenance = table.provenance;
  return stored;
}

}  // namespace dynamiccl
