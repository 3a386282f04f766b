#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/published.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/training/synchronisation_rows.hpp"
#include "reports/queries/training/tradeoff_row.hpp"

namespace dynamiccl {
namespace {

TradeoffFinding consistency_finding(const SynchronisedCell& cell) {
  if (cell.consensus_distance)
    return {fmt::format("distance {:.3g}", *cell.consensus_distance),
            "root of the workers' mean squared distance from their mean, at the end"};
  if (cell.most_stale)
    return {fmt::format("{} behind", *cell.most_stale),
            "gradients applied between a worker's weights and its own, at most"};
  if (cell.plain) return {"the same bits", "after each step: weights are compared at the end"};
  if (!cell.rounds_per_step || *cell.rounds_per_step <= 0) return {};
  return {fmt::format("the same bits every {:.3g} steps", 1 / *cell.rounds_per_step),
          "after each average"};
}

TradeoffFinding frequency_finding(const SynchronisedCell& cell) {
  if (!cell.rounds_per_step) return {};
  const double sent = *cell.rounds_per_step * (1 - cell.unsent.value_or(0));
  // Between the starts of two, and what the busiest rank sends in each: rare ones are large bursts.
  const double steps =
      cell.samples / static_cast<double>(std::max<std::int64_t>(1, cell.batch * cell.workers));
  const double exchanges = steps * sent;
  std::string burst;
  if (exchanges > 0 && cell.trained_us > 0) {
    burst = fmt::format(", one every {}", format_micros(Micros(cell.trained_us / exchanges)));
    if (cell.sent_bytes)
      burst += ", in which the busiest rank sends " +
               format_bytes(Bytes(static_cast<std::uint64_t>(*cell.sent_bytes / exchanges)));
  }
  return {fmt::format("{:.3g} a step", sent), "exchanges in a step of each worker" + burst};
}

TradeoffFinding congestion_finding(const SynchronisedCell& cell) {
  if (!cell.busiest_over_mean) return {};
  return {fmt::format("{:.2f} times", *cell.busiest_over_mean),
          fmt::format(
              "bytes of the busiest rank over a rank's mean{}{}",
              cell.sent_bytes
                  ? fmt::format("; it sent {}",
                                format_bytes(Bytes(static_cast<std::uint64_t>(*cell.sent_bytes))))
                  : "",
              cell.carried_by.empty() ? "" : "; carried by " + cell.carried_by)};
}

TradeoffFinding convergence_finding(const SynchronisedCell& cell) {
  std::string reached;
  if (cell.reached)
    reached =
        fmt::format("; {} reached the target",
                    counted_of(static_cast<std::int64_t>(*cell.reached), cell.launches, "launch"));
  if (cell.plain) return {"plain SGD", "what others are held against" + reached};
  if (!cell.beyond_plain) return {};
  return {fmt::format("{:+.1f} points", 100 * *cell.beyond_plain),
          fmt::format("accuracy less plain SGD's, [{:+.1f}, {:+.1f}]{}",
                      100 * cell.beyond_plain_low.value_or(0),
                      100 * cell.beyond_plain_high.value_or(0), reached)};
}

TradeoffFinding profile_finding(const std::string& property, const SynchronisedCell* cell) {
  if (cell == nullptr) return {};
  if (property == "consistency") return consistency_finding(*cell);
  if (property == "frequency") return frequency_finding(*cell);
  if (property == "congestion") return congestion_finding(*cell);
  return convergence_finding(*cell);
}

std::string workload_of(const SynchronisedCell& cell) {
  return join({cell.environment, cell.backend, cell.model, std::to_string(cell.batch),
               std::to_string(cell.workers), cell.task},
              "|");
}

std::vector<Value> profile_row(const std::string& run_id, const SynchronisedCell* like,
                               const PublishedLabel& label, const SynchronisedCell* cell) {
  std::vector<Value> row(7);
  row[0] = run_id;
  if (like != nullptr) {
    row[1] = like->environment;
    row[2] = like->backend;
    row[3] = like->model;
    row[4] = like->batch;
    row[5] = like->workers;
    row[6] = like->task;
  }
  const TradeoffFinding finding = profile_finding(label.property, cell);
  row.emplace_back(label.property);
  row.emplace_back(label.technique);
  row.push_back(or_null(label.label));
  row.emplace_back(finding.measured);
  row.push_back(or_null(cell == nullptr
                            ? std::string()
                            : cell->method + " " + cell->synchronisation +
                                  (cell->compression == "none" ? "" : " " + cell->compression)));
  row.push_back(or_null(finding.evidence));
  return row;
}

/// The fastest of those with gradients as they are stands for the published mode.
const SynchronisedCell* cell_of(const std::vector<const SynchronisedCell*>& own,
                                const PublishedLabel& label) {
  const SynchronisedCell* cell = nullptr;
  for (const SynchronisedCell* one : own)
    if (one->mode.profile == label.technique && one->compression == "none" &&
        (cell == nullptr || one->trained_us < cell->trained_us))
      cell = one;
  return cell;
}

/// By name those that trained something that the survey has; if there are none, one of no cells, so
/// that the published labels stand alone.
std::map<std::string, std::vector<const SynchronisedCell*>> workloads_of(
    const std::vector<SynchronisedCell>& cells) {
  std::map<std::string, std::vector<const SynchronisedCell*>> workloads;
  for (const auto& cell : cells) workloads[workload_of(cell)].push_back(&cell);
  std::erase_if(workloads, [](const auto& workload) {
    return std::ranges::none_of(training_studies().waiting_profile, [&](const auto& label) {
      return cell_of(workload.second, label) != nullptr;
    });
  });
  if (workloads.empty()) workloads[""];
  return workloads;
}

Table synchronisation_profile_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                    const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const std::string run_id = run_uuid_of(reader, run);
    const auto cells = synchronised_cells(reader, run);
    for (const auto& [name, own] : workloads_of(cells))
      for (const PublishedLabel& label : training_studies().waiting_profile)
        table.rows.push_back(
            profile_row(run_id, own.empty() ? nullptr : own.front(), label, cell_of(own, label)));
  }
  return table;
}

}  // namespace

Query synchronisation_profile_query() {
  return {.title = "Four properties of synchronisation",
          .row =
              "one property that the survey gives a place of the sum and a synchronisation "
              "(consistency, frequency, congestion, convergence), and what was measured of it in "
              "one workload that trained for epochs, by the fastest such cell",
          .columns = R"(
run_id environment backend model batch workers
task | json | data, passes, target and slowed workers, the same for all that are compared
property
technique | text | place of the sum (PS, AR, gossip) and synchronisation
published measured method evidence
)",
          .of_runs = synchronisation_profile_table};
}

}  // namespace dynamiccl
