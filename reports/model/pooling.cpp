#include "reports/model/pooling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// Of protocol_json: how many launches there are and how long they may take says nothing of a
/// launch.
constexpr std::array kProtocolParts{
    "batch_target_us", "cell_time_cap_us", "iterations", "max_batch",
    "min_iterations",  "rank_aggregation", "verify",     "warmup"};

json part_of(const json& from, const char* pointer) {
  const json::json_pointer at(pointer);
  return from.contains(at) ? from.at(at) : json();
}

/// What must be alike, by name.
std::vector<std::pair<std::string, json>> conditions_of(const Reader& reader, std::int64_t run) {
  const Table table =
      reader.query("SELECT tool_version, host_json, protocol_json FROM run WHERE id = ?1", {run});
  const TableView rows(table);
  const json host = json_or_discarded(rows.text(0, "host_json"));
  const json protocol = json_or_discarded(rows.text(0, "protocol_json"));
  if (!host.is_object() || !protocol.is_object())
    throw Error(ErrorKind::data, "--pool: a run's provenance is damaged; leave it out with --run");
  json gpus = json::array();
  for (const auto& device : part_of(host, "/gpu/nvml/devices"))
    gpus.push_back(device.value("name", ""));
  std::vector<std::pair<std::string, json>> conditions{
      {"tool", rows.text(0, "tool_version")},
      {"processor", part_of(host, "/cpu/model")},
      {"cores", part_of(host, "/cpu/cores")},
      {"kernel", part_of(host, "/system/kernel")},
      {"GPUs", gpus},
      {"GPU driver", part_of(host, "/gpu/driver_version")}};
  for (const char* part : kProtocolParts)
    conditions.emplace_back(std::string("protocol.") + part, protocol.value(part, json()));
  return conditions;
}

std::string short_id(const Reader& reader, std::int64_t run) {
  const Table table = reader.query("SELECT uuid FROM run WHERE id = ?1", {run});
  return TableView(table).text(0, "uuid").substr(0, 8);
}

void must_be_alike(const Reader& reader, const std::vector<std::int64_t>& runs) {
  if (runs.size() < 2) return;
  const auto first = conditions_of(reader, runs.front());
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const auto other = conditions_of(reader, runs[i]);
    for (std::size_t k = 0; k < first.size(); ++k) {
      if (first[k].second == other[k].second) continue;
      throw Error(
          ErrorKind::input,
          fmt::format("--pool: runs {} and {} differ in {} ({} against {}), so their launches "
                      "are no sample of one thing; name alike runs with --run",
                      short_id(reader, runs.front()), short_id(reader, runs[i]), first[k].first,
                      first[k].second.dump(), other[k].second.dump()));
    }
  }
}

/// Blocks of different runs are never the same block.
constexpr std::int64_t kBlocksOfRun = 1'000'000;

void take_in(CellFigure& into, const CellFigure& from) {
  into.launches.insert(into.launches.end(), from.launches.begin(), from.launches.end());
  into.regimes.insert(from.regimes.begin(), from.regimes.end());
  into.cadences.insert(from.cadences.begin(), from.cadences.end());
  into.barriers.insert(from.barriers.begin(), from.barriers.end());
  into.aggregations.insert(from.aggregations.begin(), from.aggregations.end());
  into.algorithms_ran.insert(from.algorithms_ran.begin(), from.algorithms_ran.end());
  into.batches.insert(from.batches.begin(), from.batches.end());
  into.drifting += from.drifting;
}

}  // namespace

std::vector<CellFigure> pool_runs(const Reader& reader, const std::vector<std::int64_t>& runs,
                                  const std::vector<CellFigure>& figures) {
  must_be_alike(reader, runs);
  std::vector<CellFigure> pooled;
  std::map<std::string, std::size_t> place_of;
  std::map<std::string, std::int64_t> number_of;
  std::map<std::string, std::set<std::string>> first_cadences;
  std::map<std::pair<std::string, std::set<std::string>>, std::string> run_of_other;
  for (CellFigure figure : figures) {
    const auto number = static_cast<std::int64_t>(number_of.size());
    const std::int64_t run = number_of.try_emplace(figure.run_id, number).first->second;
    for (auto& launch : figure.launches) launch.block += run * kBlocksOfRun;
    const std::string own_run = std::exchange(figure.run_id, figures.front().run_id);
    // Calls timed alone and calls in batches are no sample of one thing. What was timed in another
    // way than in the newest run keeps the id of a run that did, which no query takes for the same.
    const std::string cell = key_without(figure, "");
    if (first_cadences.try_emplace(cell, figure.cadences).first->second != figure.cadences)
      figure.run_id = run_of_other.try_emplace({cell, figure.cadences}, own_run).first->second;
    const auto [place, is_new] = place_of.try_emplace(key_without(figure, ""), pooled.size());
    if (is_new)
      pooled.push_back(std::move(figure));
    else
      take_in(pooled[place->second], figure);
  }
  return pooled;
}

}  // namespace dynamiccl
