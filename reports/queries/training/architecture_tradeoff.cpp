#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/published.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/training_evidence.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/training/tradeoff_row.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

TradeoffFinding bottleneck_finding(const TrainingEvidence& e, bool server) {
  if (server) {
    if (e.server_bytes <= 0 || e.worker_bytes <= 0) return {};
    const double more = e.server_bytes / e.worker_bytes;
    return {
        more > 1.1 ? "yes" : "no",
        fmt::format(
            "a server sends {:.2f} times a worker's bytes{}{}", more,
            e.server_busy ? fmt::format(", sums {:.0f} % of its step", 100 * *e.server_busy) : "",
            e.carried_by.empty() ? "" : ", carried by " + e.carried_by)};
  }
  if (e.mean_bytes <= 0 || e.worker_bytes <= 0) return {};
  const double more = e.worker_bytes / e.mean_bytes;
  return {more > 1.1 ? "yes" : "none",
          fmt::format("the busiest rank sends {:.2f} times the mean", more)};
}

TradeoffFinding sync_finding(const std::vector<const TrainingEvidence*>& of_architecture) {
  std::set<std::string> ways;
  for (const auto* e : of_architecture)
    if (const auto method = find_named<TrainingMethod>(e->cell->figure.algorithm))
      ways.emplace(synchronisation_words(*method, synchronisation_in(e->cell->cell.settings)));
  return {join({ways.begin(), ways.end()}, ", "), "of the cells that ran"};
}

TradeoffFinding topology_finding(const TrainingEvidence& e) {
  const auto& launches = e.cell->figure.launches;
  const std::string regime = launches.empty() ? "" : launches.back().regime;
  if (regime.empty()) return {};
  return {e.cell->figure.architecture == "ps" ? "star" : "as the library chooses", regime};
}

TradeoffFinding volume_finding(const TrainingEvidence& e) {
  if (e.cell->f_counted.value_or(0) <= 0) return {};
  return {fmt::format("{:.2f} volumes", *e.cell->f_counted),
          fmt::format("counted over the busiest link in a step; the formula says {:.2f}",
                      e.cell->f_formula)};
}

TradeoffFinding start_up_finding(const TrainingEvidence& e) {
  if (!e.cell->alpha_us) return {};
  return {fmt::format("{} a message", format_micros(Micros(*e.cell->alpha_us))),
          fmt::format("start-up time fitted to its {}", e.cell->fitted_from)};
}

TradeoffFinding gpu_cost(const TrainingEvidence& e) {
  const auto idle = e.cell->figure.ranks - e.cell->cell.workers;
  return {std::to_string(idle), fmt::format("of {} ranks compute nothing", e.cell->figure.ranks)};
}

TradeoffFinding architecture_finding(const std::string& property,
                                     const std::vector<const TrainingEvidence*>& of_architecture,
                                     bool server) {
  if (of_architecture.empty()) return {};
  const TrainingEvidence& fastest = *of_architecture.front();
  if (property == "server bottleneck") return bottleneck_finding(fastest, server);
  if (property == "sync compatibility") return sync_finding(of_architecture);
  if (property == "topology") return topology_finding(fastest);
  if (property == "bandwidth-optimal") return volume_finding(fastest);
  if (property == "latency-optimal") return start_up_finding(fastest);
  if (property == "GPUs lost to servers") return gpu_cost(fastest);
  return {kNotMeasured, "of slowed workers: query synchronisation_tradeoff"};
}

Table architecture_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                  const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const TrainingWorkloads workloads(reader, run);
    const std::string run_id = run_uuid_of(reader, run);
    auto all = workloads.all();
    if (all.empty()) all[""];  // the published labels stand alone
    for (const auto& [name, workload] : all)
      for (const auto& published : training_studies().architecture) {
        const bool server = published.technique == "ps";
        std::vector<const TrainingEvidence*> own;
        for (const auto* e : workload)
          if ((e->cell->figure.architecture == "ps") == server) own.push_back(e);
        const bool gossip = published.technique == "gossip";
        const TradeoffFinding finding =
            gossip ? TradeoffFinding{kNotMeasured,
                                     "its steps do not compare: query synchronisation_profile"}
                   : architecture_finding(published.property, own, server);
        table.rows.push_back(tradeoff_row(workload.empty() ? nullptr : workload.front(), run_id,
                                          published, gossip || own.empty() ? nullptr : own.front(),
                                          finding));
      }
  }
  return table;
}

}  // namespace

Query architecture_tradeoff_query() {
  return {.title = "Trade-offs of architectures",
          .row =
              "one published property of server, all-reduce and gossip, and what was measured of "
              "it in one workload, by the fastest method of the architecture",
          .columns = R"(
run_id environment backend model batch ranks property technique published measured method evidence
)",
          .of_runs = architecture_tradeoff_table};
}

}  // namespace dynamiccl
