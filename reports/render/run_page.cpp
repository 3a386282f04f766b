#include <fmt/format.h>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/stored_command.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"
#include "reports/render/run_page.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

struct Page {
  Table run;
  Table groups;
  Table launches;
  Table ranks;
  Table events;
};

Page load_page(const Reader& reader, const std::string& run) {
  return {
      reader.query("SELECT r.uuid AS run_id, r.name, r.status, r.started_utc, r.ended_utc, r.seed, "
                   "r.spec_path, e.sha256 AS spec_sha256, e.overrides_json, r.argv_json, "
                   "r.tool_version, r.host_json, r.protocol_json, e.spec_text FROM run r "
                   "JOIN experiment e ON e.id = r.experiment_id WHERE r.uuid = ?1",
                   {run}),
      reader.query(
          "SELECT g.key AS group_id, p.environment, g.backend, g.architecture, g.ranks, "
          "g.knobs_json AS group_knobs, (SELECT count(*) FROM run_cell c WHERE c.group_id = g.id) "
          "AS cells, (SELECT count(*) FROM launch l WHERE l.group_id = g.id AND l.status = 'ok') "
          "AS launches_ok, (SELECT count(*) FROM launch l WHERE l.group_id = g.id) AS attempts, "
          "(SELECT l.argv_json FROM launch l WHERE l.group_id = g.id ORDER BY l.id DESC LIMIT 1) "
          "AS argv_json FROM plan_group g JOIN profile p ON p.id = g.profile_id "
          "JOIN run r ON r.id = g.run_id WHERE r.uuid = ?1 ORDER BY g.id",
          {run}),
      reader.query(
          "SELECT block, position, environment, backend, architecture, ranks, group_knobs, "
          "attempt, "
          "launch_status AS status, duration_s, exit_code, signal, regime_name AS regime, "
          "(SELECT max(m.waited_share) FROM measurement m WHERE m.launch_id = launch_row) AS "
          "waited, "
          "(SELECT group_concat(value, '; ') FROM json_each(noise_flags_json)) AS noise, reason, "
          "launch_id, argv_json FROM v_launch WHERE run_id = ?1 ORDER BY launch_row",
          {run}),
      reader.query("SELECT v.environment, v.backend, k.library, k.library_version, "
                   "count(*) AS ranks_seen FROM v_launch v JOIN launch_rank k "
                   "ON k.launch_id = v.launch_row WHERE v.run_id = ?1 AND k.library IS NOT NULL "
                   "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2",
                   {run}),
      reader.query("SELECT e.at_utc, e.kind, l.uuid AS launch_id, e.message FROM event e "
                   "JOIN run r ON r.id = e.run_id LEFT JOIN launch l ON l.id = e.launch_id "
                   "WHERE r.uuid = ?1 ORDER BY e.id",
                   {run})};
}

/// A stored command to be copied, behind `head`; each rank's, where they start singly.
std::string stored_command(std::string_view head, const std::string& argv_json, std::size_t width) {
  const json argv = stored_json(argv_json);
  if (!argv.is_array()) return std::string(head) + argv_json + "\n";
  std::string lines;
  for (const auto& words : stored_commands(argv)) lines += command_lines(head, words, width);
  return lines;
}

Table without(Table table, const std::string& column) {
  const auto at = column_index(table, column);
  if (!at) return table;
  const auto place = static_cast<std::ptrdiff_t>(*at);
  table.columns.erase(table.columns.begin() + place);
  for (auto& row : table.rows) row.erase(row.begin() + place);
  return table;
}

std::string heading(const std::string& title, OutputFormat format) {
  return format == OutputFormat::markdown ? fmt::format("\n## {}\n\n", title)
                                          : fmt::format("\n{}\n", title);
}

std::string literal(const std::string& text, OutputFormat format) {
  if (format != OutputFormat::markdown) return text;
  return "```\n" + text + "```\n";
}

/// The newest command of each group below what the group is, as a remark of its own.
std::string group_commands(const TableView& groups, std::size_t width) {
  std::string commands;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups.text(i, "argv_json").empty()) continue;
    std::vector<std::string> name{groups.text(i, "environment"), groups.text(i, "backend"),
                                  groups.text(i, "architecture"),
                                  counted(groups.integer(i, "ranks"), "rank")};
    for (const auto& knob : setting_words(groups.text(i, "group_knobs"))) name.push_back(knob);
    // Each line a remark, as what follows is copied with it.
    for (const auto& line :
         broken_lines(join(name, " "), width == 0 ? std::string::npos : width - 4))
      commands += "  # " + line + "\n";
    commands += stored_command("  ", groups.text(i, "argv_json"), width);
  }
  return commands;
}

std::string page_for_people(const Reader& reader, const Page& page, OutputFormat format,
                            std::size_t width) {
  const TableView run(page.run);
  std::string facts;
  for (const char* column : {"run_id", "name", "status", "started_utc", "ended_utc", "seed",
                             "spec_path", "spec_sha256", "tool_version"}) {
    facts +=
        fmt::format("  {}: {}\n", column, run.text(0, column).empty() ? "-" : run.text(0, column));
  }
  // A document is the same, however wide the terminal is that it was made on.
  if (format != OutputFormat::text) width = 0;
  facts = broken_text(facts, width) +
          stored_command("  command: ", run.text(0, "argv_json"), width) + "  " +
          cell_counts(reader, run.text(0, "run_id")) + "\n";
  std::string out = format == OutputFormat::markdown ? "# Run\n\n" : "run\n";
  out += literal(facts, format);
  const auto table = [&](const std::string& title, const Table& rows) {
    if (!rows.rows.empty())
      out += heading(title, format) +
             render_table(
                 rows, format,
                 with_shared(parse_columns("duration_s | s, real | from start to end\n"
                                           "waited | real | of its time that the rank which waited "
                                           "most had no core, in the cell in which it was most",
                                           "show")),
                 width);
  };
  const auto notes = trust_notes(reader, run.text(0, "run_id"),
                                 load_figures(reader, run_scope(reader, run.text(0, "run_id"))));
  if (!notes.empty())
    out += heading("how far the figures can be trusted", format) +
           literal(broken_text("  " + join(notes, "\n  ") + "\n", width), format);
  table("groups", without(page.groups, "argv_json"));
  table("launches", without(without(page.launches, "argv_json"), "launch_id"));
  const std::string commands = group_commands(TableView(page.groups), width);
  if (!commands.empty()) {
    out += heading("commands (newest launch of each group)", format) + literal(commands, format);
  }
  table("libraries loaded", page.ranks);
  table("events", page.events);
  for (const char* column : {"protocol_json", "host_json"}) {
    std::string leaves;
    for (const auto& [what, value] : leaves_of(stored_json(run.text(0, column))))
      leaves += fmt::format("  {}: {}\n", what, value);
    const std::string name(column);
    out += heading(name.substr(0, name.size() - 5), format) +
           literal(broken_text(leaves, width), format);
  }
  std::string spec = run.text(0, "spec_text");
  if (spec.empty() || spec.back() != '\n') spec += '\n';
  return out + heading("experiment", format) + literal(spec, format);
}

/// Rows as objects; documents inside are given as such, not as text.
ordered_json objects(const Table& table) {
  ordered_json list = ordered_json::parse(render_table(table, OutputFormat::json));
  for (auto& object : list) {
    for (auto& [key, value] : object.items()) {
      const bool is_document = key.size() > 5 && key.substr(key.size() - 5) == "_json";
      if (is_document && value.is_string()) value = stored_json(value.get<std::string>());
    }
  }
  return list;
}

std::string page_as_json(const Page& page) {
  ordered_json document = objects(page.run).at(0);
  document["groups"] = objects(page.groups);
  document["launches"] = objects(page.launches);
  document["libraries"] = objects(page.ranks);
  document["events"] = objects(page.events);
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

Table list_runs(const Reader& reader) { return named_query(reader, "runs", QueryScope{}); }

std::string render_run(const Reader& reader, const std::string& run_id, OutputFormat format,
                       std::size_t width) {
  const Page page = load_page(reader, reader.resolve_run(run_id));
  if (format == OutputFormat::csv) return render_table(page.launches, format);
  if (format == OutputFormat::json) return page_as_json(page);
  return page_for_people(reader, page, format, width);
}

}  // namespace dynamiccl
