#include "tuner/table/table.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <tuple>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TableEvidence, default_us, tuned_us, ratio,
                                                ratio_low, ratio_high, launches, verdict, candidate)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TableRegime, id, name, json)

namespace {

constexpr std::string_view kFormat = "dynamiccl-table";

json entry_to_json(const TableEntry& entry) {
  return {{"key", entry.key.task.text()},
          {"regime", entry.key.regime},
          {"size_bytes", entry.size.count()},
          {"arm", entry.arm},
          {"setting",
           {{"algorithm", entry.setting.algorithm},
            {"call", entry.setting.call_knobs},
            {"launch", entry.setting.launch_knobs}}},
          {"flags", entry.flags},
          {"evidence", entry.evidence}};
}

TableEntry entry_from_json(const json& object) {
  using Texts = std::map<std::string, std::string>;
  TableEntry entry;
  entry.key.task = TaskKey::parse(object.at("key").get<std::string>());
  entry.key.regime = object.at("regime").get<std::string>();
  entry.size = Bytes(object.at("size_bytes").get<std::uint64_t>());
  entry.arm = object.at("arm").get<std::string>();
  const json& setting = object.at("setting");
  entry.setting.algorithm = setting.at("algorithm").get<std::string>();
  entry.setting.call_knobs = setting.at("call").get<Texts>();
  entry.setting.launch_knobs = setting.at("launch").get<Texts>();
  entry.flags = object.at("flags").get<std::vector<std::string>>();
  object.at("evidence").get_to(entry.evidence);
  return entry;
}

json body_of(const ConfigurationTable& table) {
  json entries = json::array();
  for (const TableEntry& entry : table.entries) entries.push_back(entry_to_json(entry));
  json body = {{"format", kFormat},        {"version", kTableFileVersion},
               {"epoch", table.epoch},     {"provenance", table.provenance},
               {"regimes", table.regimes}, {"entries", entries}};
  for (const TableEntry& check : table.checks) body["checks"].push_back(entry_to_json(check));
  return body;
}

[[noreturn]] void damaged_table(const std::string& source, const std::string& why) {
  throw Error(ErrorKind::data,
              fmt::format("{}: {}; make the table anew with `dynamiccl tune`", source, why));
}

/// Smaller is nearer.
auto distance(const TaskKey& wanted, const TaskKey& key) {
  return std::tuple(std::abs(wanted.nodes - key.nodes),
                    std::abs(wanted.group_size - key.group_size),
                    std::abs(wanted.bin.log2 - key.bin.log2));
}

}  // namespace

void ConfigurationTable::put(TableEntry entry) {
  const auto place =
      std::lower_bound(entries.begin(), entries.end(), entry,
                       [](const TableEntry& a, const TableEntry& b) { return a.key < b.key; });
  if (place != entries.end() && place->key == entry.key)
    *place = std::move(entry);
  else
    entries.insert(place, std::move(entry));
}

void ConfigurationTable::put_regime(TableRegime regime) {
  const auto same = std::find_if(regimes.begin(), regimes.end(),
                                 [&](const TableRegime& r) { return r.id == regime.id; });
  if (same == regimes.end())
    regimes.push_back(std::move(regime));
  else
    *same = std::move(regime);
}

std::optional<TableMatch> find_entry(const ConfigurationTable& table, const RegimeKey& key) {
  const TableEntry* best = nullptr;
  for (const TableEntry& entry : table.entries) {
    const TaskKey& task = entry.key.task;
    if (entry.key.regime != key.regime || task.backend != key.task.backend ||
        task.architecture != key.task.architecture || task.collective != key.task.collective)
      continue;
    if (best == nullptr || distance(key.task, task) < distance(key.task, best->key.task))
      best = &entry;
  }
  if (best == nullptr) return std::nullopt;
  TableMatch match{best, best->key == key, "exact"};
  if (!match.exact)
    match.text = fmt::format("nearest: {}, wanted {}", best->key.task.text(), key.task.text());
  return match;
}

std::string to_json(const ConfigurationTable& table) {
  json body = body_of(table);
  body["sha256"] = sha256_hex(body.dump());
  return body.dump(1) + "\n";
}

ConfigurationTable table_from_json(const std::string& text, const std::string& source) {
  json body = json_or_discarded(text);
  if (!body.is_object() || body.value("format", json()) != kFormat)
    damaged_table(source, "is no whole configuration table");
  if (body.value("version", json()) != kTableFileVersion)
    damaged_table(source, fmt::format("has version {}, this program reads {}",
                                      body.value("version", json()).dump(), kTableFileVersion));
  const json digest = body.value("sha256", json());
  body.erase("sha256");
  if (digest != sha256_hex(body.dump()))
    damaged_table(source, "its content does not have its digest");
  try {
    ConfigurationTable table;
    table.epoch = body.at("epoch").get<std::uint64_t>();
    table.provenance = body.at("provenance");
    for (const json& regime : body.at("regimes")) table.put_regime(regime.get<TableRegime>());
    for (const json& entry : body.at("entries")) table.put(entry_from_json(entry));
    for (const json& check : body.value("checks", json::array()))
      table.checks.push_back(entry_from_json(check));
    return table;
  } catch (const json::exception& error) {
    damaged_table(source, json_problem(error));
  } catch (const Error& error) {
    damaged_table(source, error.what());
  }
}

void write_table(const ConfigurationTable& table, const std::string& path) {
  const std::string beside = fmt::format("{}.{}.new", path, getpid());
  std::ofstream file;
  if (begin_draft(beside)) file.open(beside, std::ios::binary);
  file << to_json(table);
  file.close();
  if (!file || std::rename(beside.c_str(), path.c_str()) != 0) {
    std::remove(beside.c_str());
    throw Error(ErrorKind::environment,
                path +
                    ": the configuration table cannot be written; is the folder there, and may "
                    "it be written to?");
  }
}

ConfigurationTable read_table(const std::string& path) {
  require_whole_file(path);
  const auto text = read_file(path);
  if (!text)
    throw Error(ErrorKind::input, path + ": cannot be read; `dynamiccl tune search FILE --table " +
                                      path + "` makes it");
  return table_from_json(*text, path);
}

std::optional<RegimeMatch> nearest_regime(const ConfigurationTable& table, const Regime& detected) {
  for (std::size_t i = 0; i < table.regimes.size(); ++i)
    if (table.regimes[i].id == detected.id) return RegimeMatch{i, true, {}, "exact"};
  std::vector<nlohmann::json> known;
  known.reserve(table.regimes.size());
  for (const TableRegime& regime : table.regimes) known.push_back(regime.json);
  return match_regime(detected.json, known);
}

}  // namespace dynamiccl
