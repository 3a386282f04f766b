#include <fmt/format.h>

#include <map>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kPageFaultsColumns = R"(
@cell launches
median_us | us, real | median over launches of the launches' medians
faults_per_call | real | page faults of a call
message_pages | real | pages of its message
huge_bytes | bytes, integer | memory in huge pages
kept | text | whether freed blocks stayed with the process
not_effective | text | settings that came to nothing
default_faults_per_call | real | page faults with the allocator's default
default_us | us, real | time with the allocator's default
ratio verdict
)";

/// What the ranks of a cell left of their memory, over the launches that count.
struct MemoryFacts {
  std::optional<double> faults;      ///< per call, of the rank with most
  std::optional<double> page_bytes;  ///< of an ordinary page
  std::optional<double> huge_bytes;  ///< of the process with fewest, after the cells
  std::string kept;                  ///< "yes", "no", "differs"; "" = not known
  std::string not_effective;         ///< what was asked for and did not come, with the reason
};

// A rank's record has the facts of all its cells, so that it is taken apart once, not for each
// cell.
constexpr const char* kFacts = R"(
WITH counted AS MATERIALIZED (
  SELECT * FROM v_measurement WHERE run_row = ?1 AND counts
),
memory_of_rank AS MATERIALIZED (
  SELECT launch_id, rank, json_extract(details_json, '$.memory') AS memory
  FROM transport WHERE launch_id IN (SELECT launch_row FROM counted)
),
rank_facts AS MATERIALIZED (
  SELECT *, json_extract(memory, '$.page_bytes') AS page_bytes,
    json_extract(memory, '$.huge_pages.bytes') AS huge_bytes,
    json_extract(memory, '$.allocator.keeps') AS keeps,
    (SELECT group_concat(key || ': ' || value, '; ')
       FROM json_each(memory, '$.not_effective')) AS reasons
  FROM memory_of_rank
),
cell_facts AS MATERIALIZED (
  SELECT f.launch_id, f.rank, f.page_bytes, f.huge_bytes, f.keeps, f.reasons, c.key AS cell_id,
    json_extract(c.value, '$.minor_faults') AS faults, json_extract(c.value, '$.calls') AS calls
  FROM rank_facts f, json_each(f.memory, '$.cells') c
),
by_rank AS (
  SELECT v.*, avg(1.0 * faults / calls) AS mean_faults, min(huge_bytes) AS least_huge, page_bytes,
         min(keeps) AS least_keeps, max(keeps) AS most_keeps, max(reasons) AS some_reasons
  FROM counted v JOIN cell_facts f ON f.launch_id = v.launch_row AND f.cell_id = v.cell_id
  WHERE calls > 0 GROUP BY v.cell_row, f.rank
)
SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype,
       algorithm, in_place, group_knobs, cell_knobs, max(mean_faults) AS faults,
       min(page_bytes) AS page_bytes, min(least_huge) AS huge_bytes,
       CASE WHEN min(least_keeps) <> max(most_keeps) THEN 'differs'
            WHEN min(least_keeps) = 1 THEN 'yes' WHEN min(least_keeps) = 0 THEN 'no'
            ELSE '' END AS kept, max(some_reasons) AS not_effective
FROM by_rank GROUP BY cell_row)";

std::map<std::string, MemoryFacts> facts_of(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(kFacts, {run});
  const TableView rows(table);
  std::map<std::string, MemoryFacts> facts;
  for (std::size_t i = 0; i < rows.size(); ++i)
    facts[key_without(figure_cell(rows, i), "")] = {
        rows.real(i, "faults"), rows.real(i, "page_bytes"), rows.real(i, "huge_bytes"),
        rows.text(i, "kept"), rows.text(i, "not_effective")};
  return facts;
}

/// The same cell under the allocator's default; nullopt where the figure is that itself.
std::optional<std::string> default_key(CellFigure figure) {
  auto knobs = json_or_discarded(figure.group_knobs);
  if (!knobs.is_object()) return std::nullopt;
  bool asked = false;
  for (const auto& name : malloc_setting_names())
    asked = knobs.erase(setting_text(SettingScope::malloc, name)) > 0 || asked;
  if (!asked) return std::nullopt;
  figure.group_knobs = knobs.dump();
  return key_without(figure, "");
}

/// A ratio to the default's time, or nothing where the cell is the default.
struct Judged {
  std::string run_id;
  Ratio ratio;
  std::size_t row;
};

void add_row(Table& table, const CellFigure& f, const MemoryFacts& facts, const CellFigure* base,
             const MemoryFacts* base_facts, std::vector<Judged>& judged) {
  auto row = cell_values(f);
  row.emplace_back(static_cast<std::int64_t>(f.launches.size()));
  row.emplace_back(f.median_us());
  const auto pages = facts.page_bytes
                         ? std::optional(static_cast<double>(f.size_bytes) / *facts.page_bytes)
                         : std::nullopt;
  row.push_back(or_null(facts.faults));
  row.push_back(or_null(pages));
  row.push_back(or_null(facts.huge_bytes));
  row.push_back(or_null(facts.kept));
  row.push_back(or_null(facts.not_effective));
  row.push_back(or_null(base_facts == nullptr ? std::nullopt : base_facts->faults));
  row.push_back(or_null(base == nullptr ? std::nullopt : std::optional(base->median_us())));
  if (base == nullptr) {
    row.resize(table.columns.size());
  } else {
    judged.push_back({f.run_id, time_ratio(f, *base), table.rows.size()});
    row.emplace_back(judged.back().ratio.value);
    add_bounds(row, judged.back().ratio.interval);
    row.emplace_back();  // the verdict: all rows of a run are judged together
  }
  table.rows.push_back(std::move(row));
}

Table page_faults_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                        const QueryScope& /*scope*/) {
  Table table = empty_table(kPageFaultsColumns);
  std::vector<Judged> judged;
  for (const std::int64_t run : runs) {
    const auto facts = facts_of(reader, run);
    const auto figures = load_figures(reader, {run});
    std::map<std::string, const CellFigure*> by_key;
    for (const auto& figure : figures) by_key[key_without(figure, "")] = &figure;
    for (const auto& figure : figures) {
      const auto own = facts.find(key_without(figure, ""));
      if (own == facts.end()) continue;
      const auto key = default_key(figure);
      const auto base = key ? by_key.find(*key) : by_key.end();
      const auto base_facts = key ? facts.find(*key) : facts.end();
      add_row(table, figure, own->second, base == by_key.end() ? nullptr : base->second,
              base_facts == facts.end() ? nullptr : &base_facts->second, judged);
    }
  }
  std::vector<std::string> run_ids;
  std::vector<Ratio> ratios;
  for (const auto& one : judged) {
    run_ids.push_back(one.run_id);
    ratios.push_back(one.ratio);
  }
  const auto verdicts = judge_by_run(run_ids, ratios);
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    table.rows[judged[i].row].back() = std::string(name_of(verdicts[i]));
  return table;
}

}  // namespace

Query page_faults_query() {
  return {.title = "Page faults and the allocator",
          .row =
              "one cell: page faults of a call and the message's pages, what the settings "
              "malloc.keep and malloc.huge_pages came to in its ranks, and its time over that of "
              "the allocator's default",
          .columns = kPageFaultsColumns,
          .method = verdict_method(),
          .needs = "micro-benchmarks of our own worker",
          .of_runs = page_faults_table};
}

}  // namespace dynamiccl
