#include "orchestrator/tune/job/stored_floor.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

GlooTimes stored_gloo_times(const Reader& reader) {
  // What a launch or a call was given besides its defaults would say nothing of Gloo's own time.
  const Table table = reader.query(
      "SELECT m.collective, m.ranks, m.size_bytes, m.median_us, l.regime_json "
      "FROM v_measurement m JOIN launch l ON l.id = m.launch_row "
      "WHERE m.backend = ?1 AND m.architecture = 'ring' AND m.counts AND m.median_us > 0 "
      "AND m.algorithm = 'library' AND l.regime_json IS NOT NULL "
      "AND NOT EXISTS (SELECT 1 FROM json_each(m.group_knobs) k WHERE k.value <> 'default') "
      "AND NOT EXISTS (SELECT 1 FROM json_each(m.cell_knobs) k WHERE k.value <> 'default')",
      {std::string(name_of(floor_backend()))});
  const TableView view(table);
  GlooTimes times;
  std::map<std::string, std::size_t> regimes;
  for (std::size_t row = 0; row < view.size(); ++row) {
    const std::string name = view.text(row, "collective");
    const auto& names = NameTable<Collective>::entries;
    const auto collective =
        std::find_if(names.begin(), names.end(), [&](const auto& one) { return one.name == name; });
    const auto [place, is_new] =
        regimes.try_emplace(view.text(row, "regime_json"), times.regimes.size());
    if (is_new) times.regimes.push_back(json_or_discarded(place->first));
    if (collective != names.end() && collective->value != Collective::training)
      times.rows.push_back({place->second, collective->value,
                            static_cast<int>(view.integer(row, "ranks")),
                            Bytes(static_cast<std::uint64_t>(view.integer(row, "size_bytes"))),
                            Micros(view.real(row, "median_us").value_or(0))});
  }
  return times;
}

}  // namespace dynamiccl
