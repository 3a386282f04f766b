#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "train/spec/compression.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kNoTechnique = "none";

/// The survey's six-tuple of one row; "" = the row has none of it.
struct SixTuple {
  std::string sync;
  std::string compression;
  std::string architecture;
  std::string scheduling;
  std::string protocol;
  std::string topology;
  bool loses = false;  ///< its gradients travel with less than they had
};

std::string architecture_name(Architecture architecture) {
  return architecture == Architecture::ps ? "ps" : "all-reduce";
}

/// What a detected transport is in the taxonomy's words, and beyond them in plain ones.
std::string protocol_name(const std::string& transport, const std::string& inter_link) {
  if (transport == "tcp") return "TCP/IP";
  if (transport == "net") {  // NCCL's own word for any network
    if (inter_link == "tcp") return "TCP/IP";
    if (inter_link == "infiniband") return "RDMA";
    return inter_link.starts_with("roce") ? "RoCE" : "network";
  }
  if (transport == "shm") return "shared memory";
  if (transport == "cma") return "single copy between processes";
  if (transport == "p2p") return "GPU peer access";
  return transport;
}

/// The parts of a GROUP_CONCAT, each once.
std::set<std::string> parts_of(const std::string& text) {
  std::set<std::string> parts;
  for (const auto& part : split(text, ','))
    if (!part.empty()) parts.insert(part);
  return parts;
}

std::string joined_parts(const std::set<std::string>& parts) {
  return join({parts.begin(), parts.end()}, " + ");
}

/// What ranks know of the links between them; the shape of a network is nothing they can see.
std::string topology_name(std::int64_t hosts, const std::string& intra, const std::string& inter) {
  if (intra.empty() && inter.empty()) return "";
  const std::string outside = fmt::format("over {}", inter.empty() ? "unknown links" : inter);
  if (hosts > 1)
    return fmt::format("{} hosts {}, {} inside", hosts, outside,
                       intra == kNoTechnique ? "nothing shared" : intra);
  return intra == kNoTechnique ? fmt::format("one host, ranks apart, {}", outside)
                               : fmt::format("one host, {}", intra);
}

SixTuple tuple_of(const TableView& rows, std::size_t i) {
  SixTuple tuple;
  const std::string inter = joined_parts(parts_of(rows.text(i, "inter_links")));
  std::set<std::string> protocols;
  for (const auto& transport : parts_of(rows.text(i, "transports")))
    protocols.insert(protocol_name(transport, inter));
  tuple.protocol = joined_parts(protocols);
  tuple.topology = topology_name(rows.integer(i, "hosts"),
                                 joined_parts(parts_of(rows.text(i, "intra_links"))), inter);
  tuple.architecture = architecture_name(rows.text(i, "architecture") == "ps" ? Architecture::ps
                                                                              : Architecture::ring);
  if (rows.text(i, "collective") != name_of(Collective::training)) {
    tuple.compression = kNoTechnique;
    return tuple;
  }
  const auto method = find_named<TrainingMethod>(rows.text(i, "algorithm"));
  if (!method) return tuple;  // of a database that knows more methods
  tuple.scheduling = method_row(*method).schedule;
  CellFigure figure = figure_cell(rows, i);
  const auto settings = trained_cell(figure).settings;
  tuple.sync = synchronisation_words(*method, synchronisation_in(settings));
  if (const auto then = find_named<Synchronisation>(settings.value("switch_to", std::string())))
    tuple.sync += ", then " + synchronisation_words(*method, *then);
  if (method_row(*method).sums == SumPlace::neighbours) tuple.architecture = "gossip";
  if (settings.contains("group_size")) tuple.architecture = "hybrid";
  const auto packing = settings.value("packing", std::string(kNoTechnique));
  tuple.compression = packing == kNoTechnique ? kNoTechnique : "lossless packing";
  const auto codec = settings.value("compression", std::string(kNoTechnique));
  if (codec != kNoTechnique) {
    const auto known = find_named<Codec>(codec);
    tuple.compression = known ? std::string(codec_row(*known).words) : codec;
    tuple.loses = true;
  }
  const auto within = find_named<Codec>(settings.value("group_compression", std::string()));
  if (within && *within != Codec::none) {
    tuple.compression = fmt::format("{} within groups, {} to the server", codec_row(*within).words,
                                    tuple.compression);
    tuple.loses = true;
  }
  return tuple;
}

/// The surveys call lossless what trains as plain SGD does; what this program does not know may
/// not.
std::string tuple_label(const SixTuple& tuple) {
  if (tuple.compression.empty()) return "";
  if (tuple.loses) return "lossy";
  const bool as_one = tuple.sync.empty() || tuple.sync == "BSP" || tuple.sync.ends_with("barrier");
  return as_one ? "lossless" : "lossy";
}

/// A row per training cell, and per operation of other cells.
Table used_cells(const Reader& reader, std::int64_t run) {
  return reader.query(
      "WITH mine AS (SELECT launch_row FROM v_launch WHERE run_row = ?1 AND launch_status = 'ok'), "
      "moved AS (SELECT launch_id, group_concat(DISTINCT transport) AS transports FROM transport "
      "WHERE launch_id IN mine GROUP BY launch_id), "
      "spread AS (SELECT launch_id, count(DISTINCT json_extract(facts_json, '$.system.boot_id')) "
      "AS hosts FROM launch_rank WHERE launch_id IN mine GROUP BY launch_id), "
      "oracle AS (SELECT measurement_id, max(max_difference) AS difference FROM training "
      "GROUP BY measurement_id) "
      "SELECT m.run_id, m.environment, m.backend, m.architecture, m.collective, m.algorithm, "
      "m.ranks, 0 AS size_bytes, '' AS datatype, 0 AS in_place, '{}' AS group_knobs, "
      "CASE m.collective WHEN 'training' THEN m.cell_knobs ELSE '{}' END AS cell_knobs, "
      "count(DISTINCT m.cell_row) AS cells, count(DISTINCT m.launch_row) AS launches, "
      "group_concat(DISTINCT moved.transports) AS transports, "
      "group_concat(DISTINCT json_extract(l.regime_json, '$.ingredients.intra_link')) "
      "AS intra_links, "
      "group_concat(DISTINCT json_extract(l.regime_json, '$.ingredients.inter_link')) "
      "AS inter_links, max(spread.hosts) AS hosts, sum(m.checked) AS checked, "
      "sum(m.wrong) AS wrong, max(oracle.difference) AS max_difference "
      "FROM v_measurement m JOIN launch l ON l.id = m.launch_row "
      "LEFT JOIN moved ON moved.launch_id = m.launch_row "
      "LEFT JOIN spread ON spread.launch_id = m.launch_row "
      "LEFT JOIN oracle ON oracle.measurement_id = m.measurement_row "
      "WHERE m.run_row = ?1 AND m.counts "
      "GROUP BY m.environment, m.backend, m.architecture, m.collective = 'training', "
      "m.collective, m.algorithm, m.ranks, 12 "
      "ORDER BY m.collective <> 'training', m.environment, m.backend, m.architecture, "
      "m.collective, m.algorithm, m.ranks, 12",
      {run});
}

/// By environment and operation ("gloo/ring/allreduce") or, where a search chooses between runs,
/// collective alone: who chose how many settings.
std::map<std::string, std::string> tuners_of(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT d.environment, d.task_key, t.agent FROM decision d JOIN tuning t ON t.id = "
      "d.tuning_id WHERE t.run_id = ?1 AND d.kind = 'final' ORDER BY d.id",
      {run});
  const TableView rows(table);
  std::map<std::string, std::map<std::string, int>> choices;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto parts = split(rows.text(i, "task_key"), '/');
    if (parts.size() < 3) continue;
    ++choices[join({rows.text(i, "environment"), parts[0], parts[1], parts[2]}, "/")]
             [rows.text(i, "agent")];
  }
  std::map<std::string, std::string> told;
  for (const auto& [place, agents] : choices) {
    std::vector<std::string> texts;
    for (const auto& [agent, count] : agents)
      texts.push_back(fmt::format("{} choice{} by {}", count, count == 1 ? "" : "s", agent));
    told[place] = join(texts, ", ");
  }
  return told;
}

Table taxonomy_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                     const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const Table used = used_cells(reader, run);
    const TableView rows(used);
    const auto tuners = tuners_of(reader, run);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const SixTuple tuple = tuple_of(rows, i);
      const auto tuner =
          tuners.find(join({rows.text(i, "environment"), rows.text(i, "backend"),
                            rows.text(i, "architecture"), rows.text(i, "collective")},
                           "/"));
      const std::string knobs = rows.text(i, "cell_knobs");
      table.rows.push_back(
          {rows.text(i, "run_id"),
           rows.text(i, "environment"),
           rows.text(i, "backend"),
           rows.text(i, "collective"),
           rows.text(i, "algorithm"),
           or_null(knobs == "{}" ? "" : knobs),
           rows.integer(i, "ranks"),
           rows.integer(i, "cells"),
           rows.integer(i, "launches"),
           or_null(tuple.sync),
           or_null(tuple.compression),
           tuple.architecture,
           or_null(tuple.scheduling),
           or_null(tuple.protocol),
           or_null(tuple.topology),
           or_null(tuple_label(tuple)),
           rows.integer(i, "checked"),
           rows.integer(i, "wrong"),
           or_null(rows.real(i, "max_difference")),
           or_null(tuner == tuners.end()
                       ? ""
                       : fmt::format("level {:g}: {}", training_studies().tuner_level,
                                     tuner->second))});
    }
  }
  return table;
}

}  // namespace

Query taxonomy_query() {
  return {.title = "Taxonomy of what was run",
          .row =
              "one training cell, or one operation of a micro-benchmark: synchronisation, "
              "compression, architecture, scheduling, protocol and topology, whether that loses "
              "anything, and what the tuner chose at its level",
          .columns = R"(
run_id environment backend collective algorithm settings ranks cells launches
sync | text | synchronisation of workers
compression | text | of gradients
architecture
scheduling | text | how gradients are grouped and ordered
protocol | text | what carried the bytes
topology | text | the links that ranks see
label | text | whether that loses anything
checked | integer | results that were compared with what was to be expected
wrong | integer | those that were not as expected
max_difference | real | largest difference from one process that computes every worker's part
tuner | text | what a search chose at its level
)",
          .of_runs = taxonomy_table};
}

}  // namespace dynamiccl
