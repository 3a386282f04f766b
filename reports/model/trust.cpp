#include "reports/model/trust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "core/statistics/statistics.hpp"
#include "core/statistics/warmup.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/stragglers.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/waits.hpp"

namespace dynamiccl {
namespace {

/// One sentence on the figures.
struct Note {
  std::string text;
  bool against = false;                              ///< a reason to trust them less
  Note(std::string note) : text(std::move(note)) {}  // NOLINT(google-explicit-constructor)
  Note(const char* note) : text(note) {}             // NOLINT(google-explicit-constructor)
};
Note against(std::string text) {
  Note note(std::move(text));
  note.against = true;
  return note;
}

std::string group_name(const CellFigure& f) {
  return fmt::format("{} {} {} {} ranks", f.environment, f.backend, f.architecture, f.ranks);
}

/// The medians of cells that have all launches of the group, in the order of the blocks.
std::vector<std::vector<double>> series_of(const std::vector<const CellFigure*>& cells,
                                           std::size_t& launches) {
  std::set<std::int64_t> blocks;
  for (const auto* cell : cells) {
    for (const auto& launch : cell->launches) blocks.insert(launch.block);
  }
  launches = blocks.size();
  std::vector<std::vector<double>> series;
  for (const auto* cell : cells) {
    if (cell->launches.size() != launches) continue;
    series.push_back(cell->medians_us());
  }
  return series;
}

/// Holm 1979: the smallest of m probabilities times m, the next times m - 1, never decreasing.
void adjust(std::vector<GroupIndependence>& groups) {
  std::vector<GroupIndependence*> tested;
  for (auto& group : groups) {
    if (group.test) tested.push_back(&group);
  }
  std::sort(tested.begin(), tested.end(),
            [](const auto* a, const auto* b) { return a->test->p() < b->test->p(); });
  double least = 0;
  for (std::size_t i = 0; i < tested.size(); ++i) {
    const double raised = tested[i]->test->p() * static_cast<double>(tested.size() - i);
    least = std::max(least, std::min(1.0, raised));
    tested[i]->p = least;
  }
}

/// Keeps the rows of groups in ?2, a JSON list of group_key()s; "" keeps all.
constexpr std::string_view kOfGroups =
    "(?2 = '' OR run_id || '|' || environment || '|' || backend || '|' || architecture || '|' || "
    "ranks || '|' || group_knobs IN (SELECT value FROM json_each(?2)))";

/// What is said of a part of a run speaks of that part.
std::string groups_of(const std::vector<CellFigure>& figures,
                      const std::vector<CellFigure>& shown) {
  std::set<std::string> all;
  std::set<std::string> part;
  for (const auto& figure : figures) all.insert(group_key(figure));
  for (const auto& figure : shown) part.insert(group_key(figure));
  return part.size() == all.size() ? "" : nlohmann::json(part).dump();
}

Unverified unverified_of(const Reader& reader, const std::string& run, const std::string& groups) {
  const Table table = reader.query(
      fmt::format("SELECT count(*) AS n, coalesce(sum(checked = 0 AND size_bytes > 0), 0) AS none "
                  "FROM v_measurement WHERE run_id = ?1 AND counts AND {}",
                  kOfGroups),
      {run, groups});
  const TableView row(table);
  return {row.integer(0, "none"), row.integer(0, "n")};
}

Note noise_note(const Reader& reader, const std::string& run, const std::string& groups,
                const std::vector<CellFigure>& shown) {
  const Table table =
      reader.query(fmt::format("SELECT count(*) AS n, coalesce(sum(noisy), 0) AS noisy, "
                               "coalesce(sum(noise_flags_json IS NOT NULL), 0) AS judged "
                               "FROM v_launch WHERE run_id = ?1 AND launch_status = 'ok' AND {}",
                               kOfGroups),
                   {run, groups});
  const TableView row(table);
  if (row.integer(0, "n") == 0) return "";
  if (row.integer(0, "judged") == 0) return "noise gate: no launch was judged";
  if (row.integer(0, "noisy") == 0)
    return fmt::format("noise gate: none of {} flagged",
                       counted(row.integer(0, "judged"), "launch"));
  const Table why = reader.query(
      fmt::format("SELECT substr(flag.value, 1, instr(flag.value, ':') - 1) AS what, count(*) AS n "
                  "FROM v_launch, json_each(noise_flags_json) AS flag WHERE run_id = ?1 "
                  "AND launch_status = 'ok' AND {} GROUP BY what ORDER BY n DESC, what",
                  kOfGroups),
      {run, groups});
  std::vector<std::string> reasons;
  const TableView rows(why);
  for (std::size_t i = 0; i < rows.size(); ++i)
    reasons.push_back(fmt::format("{} ({})", rows.text(i, "what"), rows.integer(i, "n")));
  const std::string waits = waits_of(shown);
  return against(fmt::format(
      "noise gate: {} FLAGGED, by limits fixed before, and kept in "
      "every figure: {}{}; see `query noise`",
      counted_of(row.integer(0, "noisy"), row.integer(0, "judged"), "launch"),
      waits.empty() ? "" : "ranks waited for a core " + waits + "; ", join(reasons, ", ")));
}

Note verification_note(const Reader& reader, const std::string& run, const std::string& groups) {
  const auto unverified = unverified_of(reader, run, groups);
  if (unverified.cells == 0) return "";
  return against(
      fmt::format("results: NOT VERIFIED in {} of launches, which nothing compared with what was "
                  "to "
                  "be expected; for a run of your own leave protocol.verify on",
                  counted_of(unverified.cells, unverified.of, "cell")));
}

Note warmup_note(const Reader& reader, const std::string& run, const std::string& groups) {
  const Table table = reader.query(
      fmt::format(
          "SELECT count(*) AS n, count(settled_at) AS judged, coalesce(sum(settled_at > 0), "
          "0) AS short, coalesce(max(settled_at), 0) AS most, (SELECT protocol_json ->> "
          "'$.warmup' FROM run WHERE uuid = ?1) AS warmup FROM v_measurement "
          "WHERE run_id = ?1 AND counts AND {}",
          kOfGroups),
      {run, groups});
  const TableView row(table);
  const auto all = row.integer(0, "n");
  const auto judged = row.integer(0, "judged");
  if (all == 0) return "";
  const std::string unjudged =
      judged == all ? std::string()
                    : fmt::format(
                          "not judged in {} of launches (fewer than {} "
                          "iterations)",
                          counted_of(all - judged, all, "cell"), kFewestIterationsToTell);
  if (judged == 0) return "warm-up: " + unjudged;
  const std::string rest = unjudged.empty() ? "" : "; " + unjudged;
  if (row.integer(0, "short") == 0)
    return fmt::format("warm-up: long enough in all {} of launches{}{}", counted(judged, "cell"),
                       rest.empty() ? "" : " that were judged", rest);
  return against(
      fmt::format("warm-up: TOO SHORT in {} of launches, by up to {}{}; "
                  "see `query warmup`, and try protocol.warmup = {}",
                  counted_of(row.integer(0, "short"), judged, "cell"),
                  counted(row.integer(0, "most"), "iteration"), rest,
                  row.integer(0, "warmup") + row.integer(0, "most")));
}

Note independence_note(const std::vector<CellFigure>& figures,
                       const std::vector<CellFigure>& shown) {
  std::set<std::string> spoken_of;
  for (const auto& figure : shown) spoken_of.insert(group_key(figure));
  auto groups = test_groups(figures);
  std::erase_if(groups,
                [&](const auto& group) { return !spoken_of.contains(group_key(group.group)); });
  std::size_t tested = 0;
  std::vector<std::string> failing;
  for (const auto& group : groups) {
    tested += group.test ? 1 : 0;
    if (group.fails())
      failing.push_back(fmt::format("{} (lag-1 {:+.2f}, trend {:+.2f}, p {:.3f})",
                                    group_name(group.group), group.test->lag1, group.test->trend,
                                    group.p));
  }
  if (groups.empty()) return "";
  if (tested == 0)
    return fmt::format("independence of launches: not tested, it takes {} launches of a group",
                       kFewestLaunchesToTest);
  if (failing.empty())
    return fmt::format("independence of launches: nothing against it in {}",
                       counted(tested, "group"));
  return against(
      fmt::format("independence of launches: FAILS in {}, whose intervals are too "
                  "narrow: {}; see `query independence`",
                  counted_of(failing.size(), tested, "group"), join(failing, ", ")));
}

std::string clock_note(const Reader& reader, const std::string& run, const std::string& groups) {
  const Table table = reader.query(
      fmt::format("SELECT count(*) AS ranks, coalesce(sum(k.clock_shared = 0), 0) AS apart, "
                  "max(max(k.clock_error_us, k.clock_end_error_us)) AS error FROM v_launch v JOIN "
                  "launch_rank k ON k.launch_id = v.launch_row WHERE v.run_id = ?1 AND "
                  "k.clock_shared IS NOT NULL AND k.rank > 0 AND {}",
                  kOfGroups),
      {run, groups});
  const TableView row(table);
  if (row.integer(0, "ranks") == 0) return "";
  const Table skew = reader.query(
      fmt::format("SELECT skew_us FROM v_measurement WHERE run_id = ?1 AND counts AND skew_us IS "
                  "NOT NULL AND {}",
                  kOfGroups),
      {run, groups});
  std::vector<double> skews;
  for (std::size_t i = 0; i < skew.rows.size(); ++i)
    skews.push_back(TableView(skew).real(i, "skew_us").value_or(0));
  std::string text = row.integer(0, "apart") == 0
                         ? std::string("clocks: one clock for all ranks")
                         : fmt::format("clocks: compared by ping-pong to within {:.1f} us",
                                       row.real(0, "error").value_or(0));
  if (!skews.empty())
    text += fmt::format(
        "; ranks begin {:.1f} us apart in half of the cells of launches, {:.1f} us in the worst; "
        "see `query skew`",
        median(skews), *std::max_element(skews.begin(), skews.end()));
  return text;
}

Note stopping_note(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT count(*) AS n, sum(stopping_json ->> '$.reached') AS reached, "
      "max(stopping_json ->> '$.target_interval') AS target, "
      "max(stopping_json ->> '$.widest') AS widest, "
      "group_concat(DISTINCT CASE WHEN stopping_json ->> '$.reached' THEN NULL "
      "ELSE stopping_json ->> '$.stopped_by' END) AS stopped_by FROM plan_group g "
      "JOIN run r ON r.id = g.run_id WHERE r.uuid = ?1 AND g.stopping_json IS NOT NULL",
      {run});
  const TableView row(table);
  if (row.integer(0, "n") == 0) return "";
  const double target = row.real(0, "target").value_or(0);
  if (target <= 0) return fmt::format("stopping: {}", row.text(0, "stopped_by"));
  std::string text = fmt::format(
      "stopping: 95 % intervals within {:g} % {} {}", target * 100,
      row.integer(0, "reached") == row.integer(0, "n") ? "reached by" : "REACHED BY ONLY",
      counted_of(row.integer(0, "reached"), row.integer(0, "n"), "group"));
  if (!row.text(0, "stopped_by").empty()) {
    text += fmt::format(", the others ended by {}", row.text(0, "stopped_by"));
    if (const auto widest = row.real(0, "widest"))
      text += fmt::format(" with up to {:.1f} %", *widest * 100);
    text += "; see `query stopping`";
  }
  return row.integer(0, "reached") == row.integer(0, "n") ? Note(text) : against(text);
}

Note stragglers_of(const Reader& reader, const std::string& run, const std::string& groups) {
  const Table row = reader.query("SELECT id FROM run WHERE uuid = ?1", {run});
  if (row.rows.empty()) return "";
  std::set<std::string> told;
  if (!groups.empty()) told = parsed_json(groups).get<std::set<std::string>>();
  const std::string text = straggler_note(reader, TableView(row).integer(0, "id"), told);
  const bool found =
      text.find("SLOWER in every") != text.npos || text.find("CHANGING") != text.npos;
  return found ? against(text) : Note(text);
}

std::string replay_note(const Reader& reader, const std::string& run) {
  const Table table = reader.query("SELECT replay_of FROM run WHERE uuid = ?1", {run});
  const std::string launch = TableView(table).text(0, "replay_of");
  return launch.empty() ? "" : "replay of launch " + launch;
}

std::vector<Note> notes_of(const Reader& reader, const std::string& run_uuid,
                           const std::vector<CellFigure>& figures,
                           const std::vector<CellFigure>& shown) {
  std::set<std::string> environments;
  for (const auto& figure : figures) environments.insert(figure.environment);
  // Nothing else speaks for or against what no machine took.
  std::vector<Note> simulated;
  for (auto& text : simulated_notes(reader, run_uuid, environments))
    simulated.push_back(against(std::move(text)));
  if (!simulated.empty()) return simulated;
  const std::string groups = groups_of(figures, shown);
  std::vector<Note> notes{replay_note(reader, run_uuid),
                          stopping_note(reader, run_uuid),
                          verification_note(reader, run_uuid, groups),
                          noise_note(reader, run_uuid, groups, shown),
                          warmup_note(reader, run_uuid, groups),
                          independence_note(figures, shown),
                          clock_note(reader, run_uuid, groups),
                          stragglers_of(reader, run_uuid, groups)};
  std::erase_if(notes, [](const Note& note) { return note.text.empty(); });
  return notes;
}

}  // namespace

std::vector<std::string> simulated_notes(const Reader& reader, const std::string& run_uuid,
                                         const std::set<std::string>& environments) {
  std::vector<std::string> notes;
  if (std::none_of(environments.begin(), environments.end(),
                   [](const auto& name) { return is_simulated(name); }))
    return notes;
  const Table table = reader.query(
      "SELECT DISTINCT p.environment, coalesce(p.profile_json ->> '$.description', '') AS text "
      "FROM profile p JOIN plan_group g ON g.profile_id = p.id JOIN run r ON r.id = g.run_id "
      "WHERE ?1 IN ('', r.uuid) ORDER BY 1",
      {run_uuid});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (const auto name = rows.text(i, "environment");
        is_simulated(name) && environments.contains(name))
      notes.push_back(name + ": " + rows.text(i, "text"));
  return notes;
}

Unverified unverified_cells(const Reader& reader, const std::string& run_uuid) {
  return unverified_of(reader, run_uuid, "");
}

std::vector<GroupIndependence> test_groups(const std::vector<CellFigure>& figures) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const CellFigure*>> by_group;
  for (const auto& figure : figures) {
    auto& cells = by_group[group_key(figure)];
    if (cells.empty()) order.push_back(group_key(figure));
    cells.push_back(&figure);
  }
  std::vector<GroupIndependence> groups;
  for (const auto& key : order) {
    GroupIndependence group;
    const auto& cells = by_group.at(key);
    group.group = *cells.front();
    const auto series = series_of(cells, group.launches);
    group.cells = series.size();
    group.test = test_independence(series);
    groups.push_back(std::move(group));
  }
  adjust(groups);
  return groups;
}

std::vector<std::string> trust_notes(const Reader& reader, const std::string& run_uuid,
                                     const std::vector<CellFigure>& figures,
                                     const std::vector<CellFigure>& shown) {
  std::vector<std::string> texts;
  for (auto& note : notes_of(reader, run_uuid, figures, shown))
    texts.push_back(std::move(note.text));
  return texts;
}

std::vector<std::string> doubts(const Reader& reader, const std::string& run_uuid,
                                const std::vector<CellFigure>& figures) {
  std::vector<std::string> texts;
  for (auto& note : notes_of(reader, run_uuid, figures, figures))
    if (note.against) texts.push_back(std::move(note.text));
  return texts;
}

}  // namespace dynamiccl
