#include "tuner/export/export.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "tuner/export/mpi_export.hpp"
#include "tuner/export/one_host.hpp"

namespace dynamiccl {
namespace {

const TableRegime& pick_regime(const ConfigurationTable& table, const std::string& wanted) {
  std::vector<const TableRegime*> found;
  std::vector<std::string> names;
  for (const TableRegime& regime : table.regimes) {
    names.push_back(regime.id + " (" + regime.name + ")");
    if (regime.id.starts_with(wanted) || regime.name.starts_with(wanted)) found.push_back(&regime);
  }
  if (found.size() == 1) return *found.front();
  throw Error(ErrorKind::input,
              fmt::format("{} of the table's regimes begin with \"{}\"; name one with --regime: {}",
                          found.empty() ? "none" : "several", wanted, join(names, ", ")));
}

std::vector<TableEntry> rows_of(const ConfigurationTable& table, const TableRegime& regime,
                                int ranks) {
  std::vector<TableEntry> rows;
  for (const TableEntry& entry : table.entries)
    if (entry.key.regime == regime.id && (ranks == 0 || entry.key.task.group_size == ranks))
      rows.push_back(entry);
  return rows;
}

/// The checks of a regime's rows, of those that are exported.
std::vector<TableEntry> checks_of(const ConfigurationTable& table, const TableRegime& regime,
                                  int ranks) {
  std::vector<TableEntry> checks;
  for (const TableEntry& check : table.checks)
    if (check.key.regime == regime.id && (ranks == 0 || check.key.task.group_size == ranks))
      checks.push_back(check);
  return checks;
}

/// What lost where it was measured is the library's own choice in what jobs load: a search keeps
/// no such row, a table that was put together by hand may.
void leave_out_losers(std::vector<TableEntry>& rows, std::vector<std::string>& notes) {
  std::size_t lost = 0;
  for (TableEntry& row : rows) {
    if (row.is_default() || row.evidence.verdict != name_of(Verdict::slower)) continue;
    row.setting = {};
    ++lost;
  }
  if (lost > 0)
    notes.push_back(fmt::format("{} of {} rows are left out: the table itself calls them SLOWER",
                                lost, rows.size()));
}

/// Did a check load files of this backend, whatever they set?
bool is_checked(const std::vector<TableEntry>& checks, Backend backend) {
  return std::any_of(checks.begin(), checks.end(),
                     [&](const TableEntry& check) { return check.key.task.backend == backend; });
}

bool only_defaults(const std::vector<TableEntry>& rows, Backend backend) {
  return std::all_of(rows.begin(), rows.end(), [&](const TableEntry& row) {
    return row.key.task.backend != backend || row.is_default();
  });
}

/// Rows by what a check has kept, where there is one. It has decided with all its launches; what
/// lost all the same, in a table that was put together by hand, is left out: an algorithm at its
/// size, what holds for a whole process everywhere.
std::vector<TableEntry> confirmed_rows(std::vector<TableEntry> rows,
                                       const std::vector<TableEntry>& checks, Backend backend,
                                       std::vector<std::string>& notes) {
  if (!is_checked(checks, backend)) {
    if (!only_defaults(rows, backend))
      notes.emplace_back(
          "these files were not checked as a job loads them: `dynamiccl tune check FILE TABLE` "
          "measures them over all sizes and takes back what loses");
    return rows;
  }
  bool lost = false;
  for (const TableEntry& check : checks)
    lost = lost || (check.key.task.backend == backend && !check.setting.launch_knobs.empty() &&
                    loses(check));
  if (lost)
    notes.emplace_back("settings of the whole process are left out: a size got slower under them");
  std::vector<TableEntry> confirmed;
  for (const TableEntry& row : rows)
    if (row.key.task.backend != backend) confirmed.push_back(row);
  for (TableEntry check : checks) {
    if (check.key.task.backend != backend) continue;
    // Without the settings of the process nothing is known of the algorithms that went with them.
    const bool unknown = lost && !check.setting.launch_knobs.empty();
    if (unknown || loses(check)) {
      check.setting.algorithm = "library";
      check.setting.call_knobs.clear();
    }
    if (lost) check.setting.launch_knobs.clear();
    confirmed.push_back(std::move(check));
  }
  return confirmed;
}

std::string head(const ConfigurationTable& table, const TableRegime& regime) {
  std::string line = printable(fmt::format("# DynamICCL settings for {} ({}), table epoch {}",
                                           regime.name, regime.id, table.epoch));
  // A name with a line break must not begin a line of its own.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line + "\n";
}

[[noreturn]] void refuse_line(const std::string& name, const std::string& value,
                              const std::string& why) {
  throw Error(
      ErrorKind::input,
      fmt::format("{} = \"{}\" cannot stand in the exported file: {}; leave the setting out "
                  "of the table, or name another folder where it is a path",
                  printable(name), printable(value), why));
}

/// A table may come from somebody else: what it says must be one variable and its value, and
/// nothing more, to whoever reads the file.
void require_variable(const std::string& name, const std::string& value) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (name.empty() || name.find_first_not_of(kLetters) != std::string::npos ||
      (name.front() >= '0' && name.front() <= '9'))
    refuse_line(name, value, "a variable's name has letters, digits and _ alone");
  if (std::any_of(value.begin(), value.end(),
                  [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }))
    refuse_line(name, value, "its value has a control character");
}

/// For files that a shell and `docker run --env-file` both read. Docker knows no quotes, so that
/// only what a shell takes as it stands can be in them.
std::string plain_line(const std::string& name, const std::string& value) {
  require_variable(name, value);
  std::string ascii = value;
  std::erase_if(ascii, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  if (!ascii.empty() && shell_quote(ascii) != ascii)
    refuse_line(name, value,
                "a shell would take more than text from it, and Docker any quotes as part of it");
  return fmt::format("{}={}\n", name, value);
}

std::string path_in(const ExportOptions& options, const std::string& name) {
  return options.folder.empty() ? name : options.folder + "/" + name;
}

/// How the rows' ranks were one host to NCCL: by the job's own choice, or in the environment that
/// they were measured in.
OneHostWay one_host_of(const NcclExport& settings, const TableRegime& regime) {
  if (const auto preload = settings.environment.find("LD_PRELOAD");
      preload != settings.environment.end())
    return preloads_one_host(preload->second) ? OneHostWay::library : OneHostWay::none;
  if (settings.environment.contains("NCCL_HOSTID")) return OneHostWay::settings;
  if (!regime.json.is_object()) return OneHostWay::none;
  const auto told = regime.json.value("one_host", nlohmann::json());
  return told.is_string()
             ? find_named<OneHostWay>(told.get<std::string>()).value_or(OneHostWay::none)
             : OneHostWay::none;
}

/// What such a job needs, and how its containers get the folder. @returns what is to be preloaded
std::string add_one_host(NcclExport& settings, OneHostWay way, const ExportOptions& options,
                         Export& made) {
  auto& environment = settings.environment;
  if (way == OneHostWay::settings) {
    // A choice has its own; where peers' GPUs are to be had is not known here.
    if (!environment.contains("NCCL_HOSTID")) environment.merge(one_host_settings());
    made.use = one_host_mount("/dev/shm", "");
    made.notes.emplace_back(
        "ranks of one machine are one host to NCCL by NCCL_HOSTID: on several machines each needs "
        "a name of its own");
    return "";
  }
  const auto own = environment.find(kOneHostFolder);
  const std::string folder = !options.shared_folder.empty() ? options.shared_folder
                             : own != environment.end()     ? own->second
                                                            : kUsualFolder;
  const auto slash = options.plugin.rfind('/');
  const std::string beside = slash == std::string::npos ? "" : options.plugin.substr(0, slash + 1);
  const auto preload = environment.extract("LD_PRELOAD");
  const std::string library =
      preload.empty() ? beside + std::string(kOneHostLibrary) : preload.mapped();
  environment[kOneHostFolder] = folder;
  made.use = one_host_mount(folder, library);
  return library;
}

/// The nodes that NCCL counts for a task's ranks: those that share nothing, each with a host name
/// of its own, are nodes to it. 0: not known, so any.
unsigned nodes_of(const TableRegime& regime, const TaskKey& task) {
  const auto text_at = [&](const char* name) -> std::string {
    const nlohmann::json::json_pointer at(std::string("/ingredients/") + name);
    if (!regime.json.is_object() || !regime.json.contains(at)) return "";
    return regime.json[at].is_string() ? regime.json[at].get<std::string>() : "";
  };
  const std::string link = text_at("intra_link");
  const nlohmann::json::json_pointer apart("/ingredients/apart");
  const bool own_names = regime.json.is_object() && regime.json.contains(apart) &&
                         regime.json[apart].is_array() &&
                         std::find(regime.json[apart].begin(), regime.json[apart].end(), "uts") !=
                             regime.json[apart].end();
  if (link == "nvlink" || link == "pcie" || link == "shm")
    return static_cast<unsigned>(std::max(task.nodes, 1));
  // Several machines with several ranks each: a host name per machine, or per rank.
  if (link == "none" && own_names && (task.nodes <= 1 || task.nodes == task.group_size))
    return static_cast<unsigned>(task.group_size);
  return 0;
}

/// What the plugin compares with where it is loaded.
void add_origin(NcclExport& settings, const std::vector<TableEntry>& rows,
                const TableRegime& regime, CallTableOrigin& origin) {
  for (CallRow& row : settings.rows)
    for (const TableEntry& entry : rows)
      if (entry.key.task.group_size == static_cast<int>(row.ranks))
        row.nodes = nodes_of(regime, entry.key.task);
  const nlohmann::json::json_pointer at("/ingredients/library");
  if (!regime.json.is_object() || !regime.json.contains(at) || !regime.json[at].is_string()) return;
  const auto library = regime.json[at].get<std::string>();
  constexpr std::string_view kPrefix = "nccl-";
  if (library.starts_with(kPrefix) && library.find('.') != std::string::npos)
    origin.nccl = library.substr(kPrefix.size());
}

Export nccl(const std::vector<TableEntry>& rows, const TableRegime& regime,
            const std::string& heading, const ExportOptions& options, bool environment_only) {
  NcclExport settings = nccl_settings(rows);
  Export result;
  result.notes = settings.notes;
  const OneHostWay way = rows.empty() ? OneHostWay::none : one_host_of(settings, regime);
  const std::string preload =
      way == OneHostWay::none ? "" : add_one_host(settings, way, options, result);
  // A file of NCCL's sets what NCCL reads; the loader looks before.
  const std::string before =
      preload.empty() ? "" : fmt::format("LD_PRELOAD={} ", shell_quote(preload));
  if (environment_only && !preload.empty()) settings.environment["LD_PRELOAD"] = preload;
  std::string environment;
  for (const auto& [name, value] : settings.environment) {
    require_variable(name, value);
    environment += fmt::format("{}={}\n", name, environment_only ? shell_quote(value) : value);
  }
  if (environment_only) {
    if (environment.empty())
      throw Error(ErrorKind::input, "the table has no rows of NCCL that a variable could set");
    result.files.push_back({"nccl.env", heading + environment});
    result.use.push_back(
        fmt::format("set -a; . {}; set +a", shell_quote(path_in(options, "nccl.env"))));
    if (!settings.rows.empty())
      result.notes.emplace_back(
          "without the plugin's caps per call (--format nccl) small messages may get slower");
    return result;
  }
  if (settings.rows.empty() && environment.empty())
    throw Error(ErrorKind::input, "the table has no rows that NCCL's tuner can use");
  if (settings.rows.empty()) {
    result.files.push_back({"nccl.conf", heading + environment});
    result.use.push_back(before + "NCCL_CONF_FILE=" + shell_quote(path_in(options, "nccl.conf")) +
                         "     # in the environment of every rank");
    return result;
  }
  // NCCL reads it line by line, so one variable loads all: no quotes, no expansion.
  environment += "NCCL_TUNER_PLUGIN=" + options.plugin + "\n";
  result.files.push_back({"nccl.conf", heading + environment + "DYNAMICCL_TUNER_TABLE=" +
                                           path_in(options, "nccl.table") + "\n"});
  CallTableOrigin origin;
  add_origin(settings, rows, regime, origin);
  result.files.push_back({"nccl.table", to_text(settings.rows, origin)});
  result.use.push_back(before + "NCCL_CONF_FILE=" + shell_quote(path_in(options, "nccl.conf")) +
                       "     # in the environment of every rank");
  return result;
}

std::string lines_of(const std::map<std::string, std::string>& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += plain_line(name, value);
  return text;
}

/// How a shell and a container get a file of variables.
void add_use(Export& made, const std::string& path, const std::string& launcher) {
  made.use.push_back(fmt::format("set -a; . {}; set +a; {} ...", shell_quote(path), launcher));
  made.use.push_back(fmt::format("docker run --env-file {} ...", shell_quote(path)));
}

Export openmpi(const std::vector<TableEntry>& all, const std::vector<TableEntry>& checks,
               const std::string& heading, const ExportOptions& options) {
  Export result;
  const auto rows = confirmed_rows(all, checks, Backend::openmpi, result.notes);
  std::string parameters;
  for (const auto& [name, value] : openmpi_parameters(rows, result.notes))
    parameters += plain_line("OMPI_MCA_" + name, value);
  const auto environment = launch_environment(rows, Backend::openmpi, result.notes);
  parameters += lines_of(environment);
  const std::string rules = openmpi_rules(rows, result.notes);
  if (rules.empty() && parameters.empty()) {
    const bool none = std::none_of(rows.begin(), rows.end(), [](const TableEntry& row) {
      return row.key.task.backend == Backend::openmpi;
    });
    throw Error(
        ErrorKind::input,
        none ? "the table has no rows of Open MPI"
        : is_checked(checks, Backend::openmpi)
            ? "of the table's settings for Open MPI none was surely faster and harmless when a job "
              "loaded them: the library's own choice stays"
        : only_defaults(rows, Backend::openmpi)
            ? "the table keeps Open MPI's own choice everywhere: there is nothing to load"
            : "the table has nothing that an Open MPI job could load: " + join(result.notes, "; "));
  }
  if (!rules.empty()) {
    parameters +=
        plain_line("OMPI_MCA_coll_tuned_use_dynamic_rules", "1") +
        plain_line("OMPI_MCA_coll_tuned_dynamic_rules_filename", path_in(options, "openmpi.rules"));
    result.files.push_back({"openmpi.rules", rules});
  }
  // Variables, not a parameter file: naming one puts the system's own out of force, and with it
  // what distributions switch off there.
  result.files.push_back({"openmpi.env", heading + parameters});
  // Ranks elsewhere get MCA parameters by themselves, other variables by -x.
  std::string launcher = "mpirun";
  for (const auto& [name, value] : environment) launcher += " -x " + name;
  add_use(result, path_in(options, "openmpi.env"), launcher);
  return result;
}

Export mpich(const std::vector<TableEntry>& all, const std::vector<TableEntry>& checks,
             const std::string& heading, const ExportOptions& options) {
  Export result;
  const std::string algorithms = lines_of(mpich_variables(all, checks, result.notes));
  const auto rows = confirmed_rows(all, checks, Backend::mpich, result.notes);
  const std::string text =
      algorithms + lines_of(launch_environment(rows, Backend::mpich, result.notes));
  if (text.empty())
    throw Error(ErrorKind::input,
                "the table has nothing that an MPICH job could load" +
                    (result.notes.empty() ? std::string() : ": " + join(result.notes, "; ")));
  result.files.push_back({"mpich.env", heading + text});
  add_use(result, path_in(options, "mpich.env"), "mpiexec");
  return result;
}

/// Gloo's algorithm and segment are arguments of its calls; variables hold for the launch.
Export gloo(const std::vector<TableEntry>& rows, const std::string& heading,
            const ExportOptions& options) {
  Export result;
  const std::string text = lines_of(launch_environment(rows, Backend::gloo, result.notes));
  if (text.empty())
    throw Error(ErrorKind::input,
                "the table has no rows of Gloo with launch settings; its algorithm and segment "
                "are arguments of its calls (--format toml lists them)");
  result.files.push_back({"gloo.env", heading + text});
  add_use(result, path_in(options, "gloo.env"), "PROGRAM");
  return result;
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

Export toml(const std::vector<TableEntry>& rows, const std::string& heading) {
  std::string text = heading;
  for (const TableEntry& row : rows) {
    text += fmt::format("\n[[entry]]\nkey = {}\nregime = {}\nsize_bytes = {}\nalgorithm = {}\n",
                        quoted(row.key.task.text()), quoted(row.key.regime), row.size.count(),
                        quoted(row.setting.algorithm));
    const auto add = [&](const char* name, const std::map<std::string, std::string>& knobs) {
      if (knobs.empty()) return;
      std::vector<std::string> parts;
      for (const auto& [knob, value] : knobs) parts.push_back(quoted(knob) + " = " + quoted(value));
      text += fmt::format("{} = {{ {} }}\n", name, join(parts, ", "));
    };
    add("call", row.setting.call_knobs);
    add("launch", row.setting.launch_knobs);
    if (row.evidence.launches > 0)
      text += fmt::format("ratio = {}\nratio_interval = [{}, {}]\nlaunches = {}\nverdict = {}\n",
                          row.evidence.ratio, row.evidence.ratio_low, row.evidence.ratio_high,
                          row.evidence.launches, quoted(row.evidence.verdict));
  }
  return {{{"settings.toml", text}}, {}, {}};
}

}  // namespace

std::vector<const TableRegime*> regimes_with_rows(const ConfigurationTable& table) {
  std::vector<const TableRegime*> found;
  for (const TableRegime& regime : table.regimes)
    if (!rows_of(table, regime, 0).empty()) found.push_back(&regime);
  return found;
}

Export export_table(const ConfigurationTable& table, ExportFormat format,
                    const ExportOptions& options) {
  const TableRegime& regime = pick_regime(table, options.regime);
  std::vector<TableEntry> rows = rows_of(table, regime, options.ranks);
  if (rows.empty())
    throw Error(
        ErrorKind::input,
        fmt::format("the table has no rows of {}{}",
                    regime.name.empty() ? "this regime" : regime.name,
                    options.ranks == 0 ? "" : fmt::format(" with {} ranks", options.ranks)));
  const auto checks = checks_of(table, regime, options.ranks);
  const std::string heading = head(table, regime);
  if (format == ExportFormat::toml) return toml(rows, heading);
  std::vector<std::string> lost;
  leave_out_losers(rows, lost);
  const auto made = [&]() -> Export {
    switch (format) {
      case ExportFormat::openmpi:
        return openmpi(rows, checks, heading, options);
      case ExportFormat::mpich:
        return mpich(rows, checks, heading, options);
      case ExportFormat::gloo:
        return gloo(rows, heading, options);
      default:
        return nccl(rows, regime, heading, options, format == ExportFormat::environment);
    }
  };
  Export result = made();
  result.notes.insert(result.notes.begin(), lost.begin(), lost.end());
  return result;
}

}  // namespace dynamiccl
