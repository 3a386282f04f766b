#include "orchestrator/tune/measured_table.hpp"

#include <fmt/format.h>

#include <regex>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/simulated.hpp"
#include "orchestrator/launch/identity.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kQuery =
    "SELECT environment, architecture, collective, size_bytes, ranks, algorithm, "
    "coalesce(algorithm_ran, ''), group_knobs, cell_knobs, coalesce(regime_id, ''), "
    "coalesce(regime_name, ''), median_us FROM v_measurement "
    "WHERE counts AND run_id = ?1 AND backend = ?2 ORDER BY launch_row, measurement_row";

std::string text(const Value& value) {
  const auto* found = std::get_if<std::string>(&value);
  return found == nullptr ? "" : *found;
}
double number(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&value);
  return real == nullptr ? 0 : *real;
}

/// "RING/LL, 2 channels, 512 threads": what the NCCL plugin has seen.
int channels_in(const std::string& applied) {
  static const std::regex pattern("([0-9]+) channels");
  std::smatch match;
  return std::regex_search(applied, match, pattern) ? std::atoi(match[1].str().c_str()) : 0;
}

struct Collected {
  std::vector<ScopedObservation> observations;
  std::vector<std::string> environments;                      // of each observation
  std::map<std::string, std::map<std::string, int>> regimes;  // environment -> id -> launches
  std::map<std::string, std::string> names;                   // id -> name
};

void collect(const Reader& reader, const std::string& run, Backend backend, Collected& into) {
  const Table rows = reader.query(kQuery, {run, std::string(name_of(backend))});
  for (const auto& row : rows.rows) {
    if (is_simulated(text(row[0])))
      throw Error(
          ErrorKind::input,
          fmt::format("run {} is simulated ({}): nothing was measured that settings of a job "
                      "could be chosen by",
                      run, text(row[0])));
    ScopedObservation seen;
    seen.key.task.backend = backend;
    seen.key.task.architecture = parse_named<Architecture>(text(row[1]));
    seen.key.task.collective = parse_named<Collective>(text(row[2]));
    seen.size = Bytes(static_cast<std::uint64_t>(number(row[3])));
    seen.key.task.group_size = static_cast<int>(number(row[4]));
    seen.setting.algorithm = text(row[5]);
    seen.channels = channels_in(text(row[6]));
    seen.setting.launch_knobs = parsed_json(text(row[7]));
    // What our own programs are given is no setting of the library.
    std::erase_if(seen.setting.launch_knobs, [](const auto& knob) {
      const auto setting = find_setting(knob.first);
      return setting && setting->scope == SettingScope::env &&
             setting->name.starts_with("DYNAMICCL_");
    });
    seen.setting.call_knobs = parsed_json(text(row[8]));
    // Of a language model's step: which call it is, and no setting.
    for (const char* name : {"step", "step_calls"}) seen.setting.call_knobs.erase(name);
    seen.median_us = number(row[11]);
    ++into.regimes[text(row[0])][text(row[9])];
    into.names[text(row[9])] = text(row[10]);
    into.environments.push_back(text(row[0]));
    into.observations.push_back(std::move(seen));
  }
}

Collected collect_all(const Reader& reader, const std::vector<std::string>& runs, Backend backend) {
  Collected all;
  for (const std::string& run : runs) collect(reader, reader.resolve_run(run), backend, all);
  if (all.observations.empty())
    throw Error(ErrorKind::input,
                fmt::format("run {} in {} has no measurement of {} that counts: look at `dynamiccl "
                            "query coverage --run {}`",
                            join(runs, ", "), reader.path(), name_of(backend), runs.back()));
  for (std::size_t i = 0; i < all.observations.size(); ++i) {
    const auto& ids = all.regimes[all.environments[i]];
    all.observations[i].key.regime =
        std::max_element(ids.begin(), ids.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
  }
  return all;
}

/// What the experiment of one of the runs was run for by `tune`; "" where `run` measured it.
std::string tuned_run(const Reader& reader, const std::vector<std::string>& runs) {
  for (const std::string& run : runs) {
    const std::string id = reader.resolve_run(run);
    const Table found = reader.query(
        "SELECT 1 FROM run r JOIN experiment e ON e.id = r.experiment_id, "
        "json_each(e.overrides_json) o WHERE r.uuid = ?1 AND o.value LIKE 'tune=%'",
        {id});
    if (!found.rows.empty()) return id;
  }
  return "";
}

std::string why_nothing_compares(const Reader& reader, const std::vector<std::string>& runs,
                                 Backend backend, const JointOptions& options) {
  if (const std::string tuned = tuned_run(reader, runs); !tuned.empty())
    return fmt::format(
        "run {} is one of `dynamiccl tune`, in which no launch of {} was left as the library is, "
        "so --measured has nothing to hold settings against; what a search chose stands in the "
        "table that it wrote (tune --table): export that, as in\n  dynamiccl export "
        "results/tuned.json --format {} --out tuned",
        tuned, name_of(backend), name_of(backend));
  return fmt::format(
      "{}no size of {} was measured with the library as it is (algorithm \"library\" and no "
      "setting), so nothing can be compared: add that to the experiment, with \"default\" first in "
      "each list of [knobs] that it has",
      options.largest ? fmt::format("up to {} ", format_bytes(*options.largest)) : "",
      name_of(backend));
}

}  // namespace

ConfigurationTable measured_table(const Reader& reader, const std::vector<std::string>& runs,
                                  Backend backend, const JointOptions& options) {
  const Collected all = collect_all(reader, runs, backend);
  ConfigurationTable table;
  table.epoch = 1;
  for (TableEntry& entry : choose_jointly(all.observations, options)) {
    const auto name = all.names.find(entry.key.regime);
    table.put_regime(
        {entry.key.regime, name == all.names.end() ? "" : name->second, nlohmann::json::object()});
    table.put(std::move(entry));
  }
  if (table.entries.empty())
    throw Error(ErrorKind::input, why_nothing_compares(reader, runs, backend, options));
  table.provenance = {{"tool", tool_version()}, {"chosen", "jointly over scopes"}, {"runs", runs}};
  return table;
}

}  // namespace dynamiccl
