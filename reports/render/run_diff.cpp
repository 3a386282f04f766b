#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "profiles/profile.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"
#include "reports/render/run_diff.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// A difference and where it was seen: "" = the run itself, else its groups.
struct Finding {
  std::string part;  ///< "settings", "host", "profile", "launch"
  LeafDifference difference;
  std::set<std::string> groups;
};

Table run_row(const Reader& reader, const std::string& run) {
  return reader.query(
      "SELECT r.name, r.status, r.started_utc, r.spec_path, r.seed, r.tool_version, r.host_json, "
      "r.protocol_json, r.replay_of, e.spec_text, e.overrides_json FROM run r "
      "JOIN experiment e ON e.id = r.experiment_id WHERE r.uuid = ?1",
      {run});
}

/// What a group's newest good launch recorded, by the group's axes.
std::map<std::string, json> launches_by_group(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, v.regime_name, "
      "p.profile_json, l.container_json, l.environment_json, k.library, "
      "k.facts_json -> '$.libraries.loaded' AS libraries FROM v_launch v "
      "JOIN launch l ON l.id = v.launch_row JOIN plan_group g ON g.id = v.group_row "
      "JOIN profile p ON p.id = g.profile_id "
      "LEFT JOIN launch_rank k ON k.launch_id = l.id AND k.rank = 0 "
      "WHERE v.run_id = ?1 AND v.launch_status = 'ok' ORDER BY v.launch_row",
      {run});
  const TableView rows(table);
  std::map<std::string, json> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    json container = stored_json(rows.text(i, "container_json"));
    // Names, ids and networks are made for each run; what matters of them is in the profile.
    for (const char* passing : {"containers", "network", "subnet", "exec_argv"})
      if (container.is_object()) container.erase(passing);
    json variables = stored_json(rows.text(i, "environment_json"));
    json kept = json::object();
    for (const auto& [name, value] : variables.items())
      if (!is_launch_variable(name)) kept[name] = value;
    const std::string group =
        fmt::format("{} {} {} {} ranks {}", rows.text(i, "environment"), rows.text(i, "backend"),
                    rows.text(i, "architecture"), rows.text(i, "ranks"),
                    rows.text(i, "group_knobs") == "{}" ? "" : rows.text(i, "group_knobs"));
    groups[std::string(trim(group))] = {
        {"profile", shown_profile(stored_json(rows.text(i, "profile_json")))},
        {"launch",
         {{"regime", rows.text(i, "regime_name")},
          {"library", rows.text(i, "library")},
          {"container", container},
          {"variable", kept},
          {"loaded", stored_json(rows.text(i, "libraries"))}}}};
  }
  return groups;
}

class Findings {
 public:
  void add(const std::string& part, const std::vector<LeafDifference>& differences,
           const std::string& group = "") {
    for (const auto& difference : differences) {
      const std::string key =
          part + "\n" + difference.what + "\n" + difference.a + "\n" + difference.b;
      auto [found, is_new] = index_.try_emplace(key, list.size());
      if (is_new) list.push_back({part, difference, {}});
      if (!group.empty()) list[found->second].groups.insert(group);
    }
  }
  std::vector<Finding> list;

 private:
  std::map<std::string, std::size_t> index_;
};

/// Lines of the one text that the other has not, by their longest common subsequence.
std::vector<LeafDifference> changed_lines(const std::string& a, const std::string& b) {
  const auto left = split(a, '\n');
  const auto right = split(b, '\n');
  std::vector<std::vector<std::size_t>> common(left.size() + 1,
                                               std::vector<std::size_t>(right.size() + 1, 0));
  for (std::size_t i = left.size(); i-- > 0;)
    for (std::size_t j = right.size(); j-- > 0;)
      common[i][j] = left[i] == right[j] ? common[i + 1][j + 1] + 1
                                         : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<LeafDifference> changes;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() || j < right.size()) {
    if (i < left.size() && j < right.size() && left[i] == right[j]) {
      ++i;
      ++j;
    } else if (j == right.size() || (i < left.size() && common[i + 1][j] >= common[i][j + 1])) {
      changes.push_back({fmt::format("file line {}", i + 1), left[i], "-"});
      ++i;
    } else {
      changes.push_back({fmt::format("file line {}", j + 1), "-", right[j]});
      ++j;
    }
  }
  return changes;
}

std::vector<Finding> compare_runs(const Reader& reader, const std::string& a,
                                  const std::string& b) {
  const Table row_a = run_row(reader, a);
  const Table row_b = run_row(reader, b);
  const TableView left(row_a);
  const TableView right(row_b);
  Findings findings;
  for (const char* column : {"name", "status", "spec_path", "seed", "replay_of", "tool_version"}) {
    if (left.text(0, column) != right.text(0, column))
      findings.add("run", {{column, left.text(0, column), right.text(0, column)}});
  }
  findings.add("settings", leaf_differences(stored_json(left.text(0, "protocol_json")),
                                            stored_json(right.text(0, "protocol_json"))));
  if (left.text(0, "overrides_json") != right.text(0, "overrides_json"))
    findings.add("settings",
                 {{"--set", left.text(0, "overrides_json"), right.text(0, "overrides_json")}});
  findings.add("settings", changed_lines(left.text(0, "spec_text"), right.text(0, "spec_text")));
  findings.add("host", without_passing(leaf_differences(stored_json(left.text(0, "host_json")),
                                                        stored_json(right.text(0, "host_json")))));
  const auto groups_a = launches_by_group(reader, a);
  for (const auto& [name, theirs] : launches_by_group(reader, b)) {
    const auto mine = groups_a.find(name);
    if (mine == groups_a.end()) continue;
    for (const char* part : {"profile", "launch"})
      findings.add(part, leaf_differences(mine->second[part], theirs[part]), name);
  }
  return findings.list;
}

Table findings_table(const std::vector<Finding>& findings) {
  Table table;
  table.columns = {"part", "what", "A", "B", "groups"};
  for (const auto& finding : findings) {
    const auto& groups = finding.groups;
    const std::string where = groups.size() > 2 ? fmt::format("{} groups", groups.size())
                                                : join({groups.begin(), groups.end()}, ", ");
    table.rows.push_back({finding.part, finding.difference.what, finding.difference.a,
                          finding.difference.b, or_null(where)});
  }
  return table;
}

/// Axes of a cell without its run.
std::string cell_key(CellFigure figure) {
  figure.run_id.clear();
  return key_without(figure, "");
}

/// "batched", or "batched | isolated" where the sides were timed in different ways.
std::string both_cadences(const CellFigure& a, const CellFigure& b) {
  const std::string of_a = join({a.cadences.begin(), a.cadences.end()}, ", ");
  const std::string of_b = join({b.cadences.begin(), b.cadences.end()}, ", ");
  return of_a == of_b ? of_a : of_a + " | " + of_b;
}

struct SideBySide {
  Table table;
  std::size_t only_a = 0;
  std::size_t only_b = 0;
  std::size_t timed_unlike = 0;
};

SideBySide figures_side_by_side(const Reader& reader, const std::string& a, const std::string& b) {
  const auto left = load_figures(reader, run_scope(reader, a));
  const auto right = load_figures(reader, run_scope(reader, b));
  std::map<std::string, const CellFigure*> by_cell;
  for (const auto& figure : left) by_cell[cell_key(figure)] = &figure;
  SideBySide result;
  result.table.columns = {"environment", "backend",    "architecture", "collective", "size_bytes",
                          "ranks",       "datatype",   "algorithm",    "in_place",   "group_knobs",
                          "cell_knobs",  "A_us",       "A_low_us",     "A_high_us",  "B_us",
                          "B_low_us",    "B_high_us",  "x A",          "x A_low",    "x A_high",
                          "launches_A",  "launches_B", "cadence"};
  for (const auto& figure : right) {
    const auto found = by_cell.find(cell_key(figure));
    if (found == by_cell.end()) {
      ++result.only_b;
      continue;
    }
    const CellFigure& base = *found->second;
    std::vector<Value> row{figure.environment, figure.backend,    figure.architecture,
                           figure.collective,  figure.size_bytes, figure.ranks,
                           figure.datatype,    figure.algorithm,  figure.in_place,
                           figure.group_knobs, figure.cell_knobs};
    row.emplace_back(base.median_us());
    add_bounds(row, base.interval());
    row.emplace_back(figure.median_us());
    add_bounds(row, figure.interval());
    const Ratio ratio = time_ratio(figure, base);
    row.emplace_back(ratio.value);
    add_bounds(row, ratio.interval);
    row.emplace_back(static_cast<std::int64_t>(base.launches.size()));
    row.emplace_back(static_cast<std::int64_t>(figure.launches.size()));
    row.push_back(or_null(both_cadences(base, figure)));
    if (base.cadences != figure.cadences) ++result.timed_unlike;
    result.table.rows.push_back(std::move(row));
    by_cell.erase(found);
  }
  result.only_a = by_cell.size();
  return result;
}

std::string side_line(const char* side, const Reader& reader, const std::string& run) {
  const Table table = run_row(reader, run);
  const TableView row(table);
  return fmt::format("{} {} ({}), {}, {}\n", side, run, row.text(0, "name"), row.text(0, "status"),
                     row.text(0, "started_utc"));
}

}  // namespace

std::string render_run_diff(const Reader& reader, const std::string& a_name,
                            const std::string& b_name, OutputFormat format, std::size_t width) {
  const std::string a = reader.resolve_run(a_name);
  const std::string b = reader.resolve_run(b_name);
  const Table differences = findings_table(compare_runs(reader, a, b));
  const auto figures = figures_side_by_side(reader, a, b);
  if (format == OutputFormat::csv) return render_table(figures.table, format);
  if (format == OutputFormat::json) {
    const auto list = [](const Table& table) {
      return nlohmann::ordered_json::parse(render_table(table, OutputFormat::json));
    };
    return nlohmann::ordered_json{{"a", a},
                                  {"b", b},
                                  {"differences", list(differences)},
                                  {"figures", list(figures.table)},
                                  {"cells_only_in_a", figures.only_a},
                                  {"cells_only_in_b", figures.only_b}}
               .dump(2, ' ', false, json::error_handler_t::replace) +
           "\n";
  }
  std::string out = side_line("A", reader, a) + side_line("B", reader, b);
  out += differences.rows.empty()
             ? "\nnothing that is recorded differs: settings, host, profiles, images, libraries\n"
             : "\nwhat differs\n" + render_table(differences, format, {}, width);
  if (!figures.table.rows.empty()) {
    out +=
        "\nfigures: median of launch medians [95 % interval]; x A = time of B / time of A, "
        "unpaired (rank sum of logarithms; below six launches or of unlike spread the medians' "
        "ratio, Welch); one launch gives no interval\n" +
        render_table(figures.table, format,
                     with_shared(parse_columns("A_us | us, real, interval | time of A\n"
                                               "B_us | us, real, interval | time of B\n"
                                               "x A | real, interval | time of B over time of A",
                                               "run_diff")),
                     width);
  }
  if (figures.timed_unlike > 0)
    out += fmt::format(
        "cadence differs in {}, without an interval: such a ratio speaks of how the cell "
        "was timed, as a mean of calls back to back (batched) is shorter than a call alone\n",
        counted_of(figures.timed_unlike, figures.table.rows.size(), "cell"));
  if (figures.only_a + figures.only_b > 0)
    out += fmt::format("cells with figures in one run alone: {} in A, {} in B\n", figures.only_a,
                       figures.only_b);
  return out;
}

}  // namespace dynamiccl
