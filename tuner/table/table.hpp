#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "profiles/detect/regime.hpp"
#include "tuner/action/action_space.hpp"
#include "tuner/state/task_key.hpp"

namespace dynamiccl {

inline constexpr int kTableFileVersion = 1;

/// What is known of a row's worth: launches on the default's and on the setting's side.
struct TableEvidence {
  double default_us = 0;  ///< typical time of one call under the library's default; 0 = unknown
  double tuned_us = 0;    ///< under the row's setting
  /// ActionSettings that was compared with the default on fresh launches; where it was not surely
  /// faster the row's own is the default. "" = none was.
  std::string candidate = {};
  /// Candidate over default with its interval, at the confidence by which it was kept or not (98.2
  /// % in a search, 95 % of a table that was judged); 0 = never compared on fresh launches.
  double ratio = 0;
  double ratio_low = 0;
  double ratio_high = 0;
  int launches = 0;     ///< per side
  std::string verdict;  ///< "FASTER", "SAME", "SLOWER", "UNCLEAR"; "" = never compared
  bool operator==(const TableEvidence&) const = default;
};

/// One row: calls with this key in this regime use this setting.
struct TableEntry {
  RegimeKey key;
  Bytes size;              ///< size at which it was measured, inside the key's bin
  ActionSettings setting;  ///< the default's ActionSettings{} = leave the library alone
  std::string arm;         ///< ActionSpace::text(): for people
  /// "non_actionable_regime", "undecided", "unexplored", "lossless_saturated" and what guards have
  /// to say.
  std::vector<std::string> flags;
  TableEvidence evidence;
  [[nodiscard]] bool is_default() const { return setting == ActionSettings{}; }
  bool operator==(const TableEntry&) const = default;
};

/// A regime that rows refer to.
struct TableRegime {
  std::string id;
  std::string name;
  nlohmann::json json;  ///< Regime::json: what nearness is counted in
  bool operator==(const TableRegime&) const = default;
};

/// Settings by task key and regime: what `tune` leaves, what jobs load and what
/// `export` turns into the libraries' own files. Rows are sorted by key and have one row per key.
struct ConfigurationTable {
  std::uint64_t epoch = 0;  ///< grows with every change; ranks that agree have the same
  std::vector<TableRegime> regimes;
  std::vector<TableEntry> entries;
  /// What files made from this table did when they were loaded as a job loads them, by size; sorted
  /// as entries and by size. The setting is what the files had in force there; entries of the same
  /// regime, backend and ranks are exported through these, where there are any.
  std::vector<TableEntry> checks;
  /// Tool version, machine, when, agent and policy version, run ids; no secrets.
  nlohmann::json provenance = nlohmann::json::object();

  /// Inserts or replaces the key's row.
  void put(TableEntry entry);
  void put_regime(TableRegime regime);
  bool operator==(const ConfigurationTable&) const = default;
};

/// How a row was found.
struct TableMatch {
  const TableEntry* entry = nullptr;
  bool exact = false;
  std::string text;  ///< "exact", or "nearest: size 2^20, wanted 2^21"
};

/// The row of a key, else the nearest in the same regime with equal backend, architecture and
/// collective: first by group size and nodes, then by size. nullopt when there is none: the
/// library's default. Never crosses regimes; see nearest_regime().
std::optional<TableMatch> find_entry(const ConfigurationTable& table, const RegimeKey& key);

/// JSON: {"format": "dynamiccl-table", "version", "epoch", "sha256" of the rest, "provenance",
/// "regimes": [{"id", "name", "json"}], "entries": [{"key", "regime", "size_bytes", "arm",
/// "setting": {"algorithm", "call": {}, "launch": {}}, "flags": [], "evidence": {}}], "checks": [as
/// entries; left out where there are none]}.
std::string to_json(const ConfigurationTable& table);
/// @param source named in messages
/// @throws Error(data) when damaged, torn or of another version
ConfigurationTable table_from_json(const std::string& text, const std::string& source);

/// Written next to the target and renamed, so that a reader never sees half a file.
/// @throws Error(environment) when it cannot be written
void write_table(const ConfigurationTable& table, const std::string& path);
/// @throws Error(input) when it cannot be read, Error(data) as table_from_json()
ConfigurationTable read_table(const std::string& path);

/// The table's regime equal to the one detected, else the nearest (RegimeMatch::text says by what
/// it differs); nullopt for a table without regimes. `index` is into table.regimes.
std::optional<RegimeMatch> nearest_regime(const ConfigurationTable& table, const Regime& detected);

}  // namespace dynamiccl
