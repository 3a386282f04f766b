#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/training/training.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/table_view.hpp"
#include "reports/training_evidence.hpp"
#include "reports/training_queries.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kNotMeasured = "not measured";
constexpr std::uint64_t kSmallTensor = 64 * 1024;  // below: start-up time counts more than bytes

/// What is measured of one property: a word beside the published label, and what it rests on.
struct TradeoffFinding {
  std::string measured = kNotMeasured;
  std::string evidence;
};

std::string tradeoff_bytes(std::uint64_t bytes) { return format_bytes(Bytes(bytes)); }

TradeoffFinding bottleneck_finding(const CellEvidence& e, bool server) {
  if (server) {
    if (e.server_bytes <= 0 || e.worker_bytes <= 0) return {};
    const double more = e.server_bytes / e.worker_bytes;
    return {
        more > 1.1 ? "yes" : "no",
        fmt::format(
            "a server sends {:.2f} times a worker's bytes{}", more,
            e.server_busy ? fmt::format(", sums {:.0f} % of its step", 100 * *e.server_busy) : "")};
  }
  if (e.mean_bytes <= 0 || e.worker_bytes <= 0) return {};
  const double more = e.worker_bytes / e.mean_bytes;
  return {more > 1.1 ? "yes" : "none",
          fmt::format("the busiest rank sends {:.2f} times the mean", more)};
}

TradeoffFinding sync_finding(const std::vector<const CellEvidence*>& of_architecture) {
  std::set<std::string> ways;
  for (const auto* e : of_architecture)
    if (const auto method = find_named<TrainingMethod>(e->cell->figure.algorithm))
      ways.emplace(synchronisation_of(*method));
  return {join({ways.begin(), ways.end()}, ", "), "methods that ran; other ways are not built"};
}

TradeoffFinding topology_finding(const CellEvidence& e) {
  const auto& launches = e.cell->figure.launches;
  const std::string regime = launches.empty() ? "" : launches.back().regime;
  if (regime.empty()) return {};
  return {e.cell->figure.architecture == "ps" ? "star" : "as the library chooses", regime};
}

TradeoffFinding volume_finding(const CellEvidence& e) {
  if (e.cell->f_counted <= 0) return {};
  return {fmt::format("{:.2f} volumes", e.cell->f_counted),
          fmt::format("counted over the busiest link in a step; the formula says {:.2f}",
                      e.cell->f_formula)};
}

TradeoffFinding start_up_finding(const CellEvidence& e) {
  if (!e.cell->alpha_us) return {};
  return {fmt::format("{} a message", format_micros(Micros(*e.cell->alpha_us))),
          fmt::format("start-up time fitted to its {}", e.cell->fitted_from)};
}

TradeoffFinding gpu_cost(const CellEvidence& e) {
  const auto idle = e.cell->figure.ranks - e.cell->cell.workers;
  return {std::to_string(idle), fmt::format("of {} ranks compute nothing", e.cell->figure.ranks)};
}

TradeoffFinding architecture_finding(const std::string& property,
                                     const std::vector<const CellEvidence*>& of_architecture,
                                     bool server) {
  if (of_architecture.empty()) return {};
  const CellEvidence& fastest = *of_architecture.front();
  if (property == "server bottleneck") return bottleneck_finding(fastest, server);
  if (property == "sync compatibility") return sync_finding(of_architecture);
  if (property == "topology") return topology_finding(fastest);
  if (property == "bandwidth-optimal") return volume_finding(fastest);
  if (property == "latency-optimal") return start_up_finding(fastest);
  if (property == "GPUs lost to servers") return gpu_cost(fastest);
  return {kNotMeasured, "needs workers of different speeds"};
}

std::uint64_t largest(const std::vector<std::uint64_t>& sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

auto small_ones(const std::vector<std::uint64_t>& sizes) {
  return std::count_if(sizes.begin(), sizes.end(), [](auto bytes) { return bytes < kSmallTensor; });
}

TradeoffFinding small_tensors(const CellEvidence& e) {
  const auto before = small_ones(e.tensors);
  const auto after = small_ones(e.messages);
  return {before == 0      ? "none to fight"
          : after < before ? "yes"
                           : "no",
          fmt::format("{} of {} tensors, {} of {} messages below 64 KiB", before, e.tensors.size(),
                      after, e.messages.size())};
}

TradeoffFinding large_tensors(const CellEvidence& e) {
  return {largest(e.messages) < largest(e.tensors) ? "yes" : "no",
          fmt::format("largest tensor {}, largest message {}", tradeoff_bytes(largest(e.tensors)),
                      tradeoff_bytes(largest(e.messages)))};
}

TradeoffFinding per_tensor(const CellEvidence& e) {
  if (e.sent.empty()) return {kNotMeasured, "the library's queue leaves no trace of messages"};
  double all_us = 0;
  std::size_t messages = 0;
  for (const auto& message : e.sent) {
    all_us += message.duration_us;
    messages += message.answer ? 0 : 1;
  }
  if (messages == 0) return {};
  const double each_us = all_us / static_cast<double>(messages);
  // A trace may reach into the step before: per message, then the messages of a plan per tensor.
  const double per_tensor_us =
      each_us * static_cast<double>(e.messages.size()) / static_cast<double>(e.tensors.size());
  return {fmt::format("{} a tensor", format_micros(Micros(per_tensor_us))),
          fmt::format("{} a message, both halves, mean of {} in the trace of one step",
                      format_micros(Micros(each_us)), messages)};
}

/// Gradients are ready in the order of their offsets: what starts before one that was ready earlier
/// has overtaken it, as the next forward pass needs it sooner. A piece that comes again begins
/// another step.
TradeoffFinding critical_path(const CellEvidence& e) {
  if (e.sent.empty()) return {kNotMeasured, "the library's queue leaves no trace of messages"};
  std::int64_t overtaken = 0;
  std::int64_t messages = 0;
  std::uint64_t furthest = 0;
  std::set<std::uint64_t> seen;
  for (const auto& message : e.sent) {
    if (message.answer) continue;
    if (!seen.insert(message.offset).second) {
      seen = {message.offset};
      furthest = 0;
    }
    ++messages;
    overtaken += message.offset < furthest ? 1 : 0;
    furthest = std::max(furthest, message.offset);
  }
  return {overtaken > 0 ? "yes" : "no",
          fmt::format("{} of {} messages in the trace of one step were overtaken", overtaken,
                      messages)};
}

TradeoffFinding in_ddp(const CellEvidence& e, const std::vector<const CellEvidence*>& workload) {
  for (const auto* other : workload)
    if (other->cell->figure.algorithm == "ddp")
      return {fmt::format("{:.2f} times DDP's step",
                          e.cell->figure.median_us() / other->cell->figure.median_us()),
              "PyTorch's engine in the same run, " + std::to_string(other->messages.size()) +
                  " messages"};
  return {kNotMeasured, "no ddp in this run"};
}

TradeoffFinding scheduling_finding(const std::string& property, const CellEvidence* e,
                                   const std::vector<const CellEvidence*>& workload) {
  if (e == nullptr) return {};
  if (property == "in PyTorch DDP") return in_ddp(*e, workload);
  if (e->tensors.empty() || e->messages.empty()) return {};
  if (property == "fights small tensors") return small_tensors(*e);
  if (property == "fights large tensors") return large_tensors(*e);
  if (property == "per-tensor latency") return per_tensor(*e);
  if (property == "critical path aware") return critical_path(*e);
  return {};
}

/// The fastest method that is the survey's technique. ByteScheduler both cuts and orders.
const CellEvidence* of_technique(const std::vector<const CellEvidence*>& workload,
                                 const std::string& technique) {
  const std::string prefix = technique == "wfbp"      ? "wfbp"
                             : technique == "mg_wfbp" ? "mg-wfbp"
                                                      : "bytescheduler";
  for (const auto* e : workload)
    if (e->cell->figure.algorithm.starts_with(prefix)) return e;
  return nullptr;
}

std::vector<Value> tradeoff_row(const CellEvidence* like, const std::string& run_id,
                                const PublishedLabel& published, const CellEvidence* of,
                                const TradeoffFinding& finding) {
  std::vector<Value> row(6);
  row[0] = run_id;
  if (like != nullptr) {
    const CellFigure& f = like->cell->figure;
    row[1] = f.environment;
    row[2] = f.backend;
    row[3] = like->cell->cell.model;
    row[4] = like->cell->cell.batch;
    row[5] = f.ranks;
  }
  row.emplace_back(published.property);
  row.emplace_back(published.technique);
  row.push_back(or_null(published.label));
  row.emplace_back(finding.measured);
  row.push_back(or_null(of == nullptr ? "" : of->cell->figure.algorithm));
  row.push_back(or_null(finding.evidence));
  return row;
}

Table tradeoff_columns() {
  Table table;
  table.columns = {"run_id",   "environment", "backend",   "model",    "batch",  "ranks",
                   "property", "technique",   "published", "measured", "method", "evidence"};
  return table;
}

std::string run_of_tradeoff(const Reader& reader, std::int64_t run) {
  const Table table = reader.query("SELECT uuid FROM run WHERE id = ?1", {run});
  return TableView(table).text(0, "uuid");
}

}  // namespace

Table architecture_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                  const QueryScope& /*scope*/) {
  Table table = tradeoff_columns();
  for (const std::int64_t run : runs) {
    const TrainingWorkloads workloads(reader, run);
    const std::string run_id = run_of_tradeoff(reader, run);
    auto all = workloads.all();
    if (all.empty()) all[""];  // the published labels stand alone
    for (const auto& [name, workload] : all)
      for (const auto& published : training_studies().architecture) {
        const bool server = published.technique == "ps";
        std::vector<const CellEvidence*> own;
        for (const auto* e : workload)
          if ((e->cell->figure.architecture == "ps") == server) own.push_back(e);
        const bool gossip = published.technique == "gossip";
        const TradeoffFinding finding =
            gossip ? TradeoffFinding{kNotMeasured, "gossip does not run here"}
                   : architecture_finding(published.property, own, server);
        table.rows.push_back(tradeoff_row(workload.empty() ? nullptr : workload.front(), run_id,
                                          published, gossip || own.empty() ? nullptr : own.front(),
                                          finding));
      }
  }
  return table;
}

Table scheduling_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                const QueryScope& /*scope*/) {
  Table table = tradeoff_columns();
  for (const std::int64_t run : runs) {
    const TrainingWorkloads workloads(reader, run);
    const std::string run_id = run_of_tradeoff(reader, run);
    auto all = workloads.all();
    if (all.empty()) all[""];
    for (const auto& [name, workload] : all)
      for (const auto& published : training_studies().scheduling) {
        const CellEvidence* own = of_technique(workload, published.technique);
        table.rows.push_back(tradeoff_row(workload.empty() ? nullptr : workload.front(), run_id,
                                          published, own,
                                          scheduling_finding(published.property, own, workload)));
      }
  }
  return table;
}

}  // namespace dynamiccl
