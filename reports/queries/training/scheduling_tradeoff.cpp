#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "core/vocabulary/units.hpp"
#include "reports/model/published.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/training_evidence.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/training/tradeoff_row.hpp"

namespace dynamiccl {
namespace {

constexpr std::uint64_t kSmallTensor = 64 * 1024;  // below: start-up time counts more than bytes

std::string tradeoff_bytes(std::uint64_t bytes) { return format_bytes(Bytes(bytes)); }

std::uint64_t largest(const std::vector<std::uint64_t>& sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

auto small_ones(const std::vector<std::uint64_t>& sizes) {
  return std::count_if(sizes.begin(), sizes.end(), [](auto bytes) { return bytes < kSmallTensor; });
}

TradeoffFinding small_tensors(const TrainingEvidence& e) {
  const auto before = small_ones(e.tensors);
  const auto after = small_ones(e.messages);
  return {before == 0      ? "none to fight"
          : after < before ? "yes"
                           : "no",
          fmt::format("{} of {} tensors, {} of {} messages below 64 KiB", before, e.tensors.size(),
                      after, e.messages.size())};
}

TradeoffFinding large_tensors(const TrainingEvidence& e) {
  return {largest(e.messages) < largest(e.tensors) ? "yes" : "no",
          fmt::format("largest tensor {}, largest message {}", tradeoff_bytes(largest(e.tensors)),
                      tradeoff_bytes(largest(e.messages)))};
}

TradeoffFinding per_tensor(const TrainingEvidence& e) {
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
TradeoffFinding critical_path(const TrainingEvidence& e) {
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

TradeoffFinding in_ddp(const TrainingEvidence& e,
                       const std::vector<const TrainingEvidence*>& workload) {
  for (const auto* other : workload)
    if (other->cell->figure.algorithm == "ddp")
      return {fmt::format("{:.2f} times DDP's step",
                          e.cell->figure.median_us() / other->cell->figure.median_us()),
              "PyTorch's engine in the same run, " + std::to_string(other->messages.size()) +
                  " messages"};
  return {kNotMeasured, "no ddp in this run"};
}

TradeoffFinding scheduling_finding(const std::string& property, const TrainingEvidence* e,
                                   const std::vector<const TrainingEvidence*>& workload) {
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
const TrainingEvidence* of_technique(const std::vector<const TrainingEvidence*>& workload,
                                     const std::string& technique) {
  const std::string prefix = technique == "wfbp"      ? "wfbp"
                             : technique == "mg_wfbp" ? "mg-wfbp"
                                                      : "bytescheduler";
  for (const auto* e : workload)
    if (e->cell->figure.algorithm.starts_with(prefix)) return e;
  return nullptr;
}

Table scheduling_tradeoff_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                                const QueryScope& /*scope*/) {
  Table table;
  for (const std::int64_t run : runs) {
    const TrainingWorkloads workloads(reader, run);
    const std::string run_id = run_uuid_of(reader, run);
    auto all = workloads.all();
    if (all.empty()) all[""];
    for (const auto& [name, workload] : all)
      for (const auto& published : training_studies().scheduling) {
        const TrainingEvidence* own = of_technique(workload, published.technique);
        table.rows.push_back(tradeoff_row(workload.empty() ? nullptr : workload.front(), run_id,
                                          published, own,
                                          scheduling_finding(published.property, own, workload)));
      }
  }
  return table;
}

}  // namespace

Query scheduling_tradeoff_query() {
  return {.title = "Trade-offs of scheduling",
          .row =
              "one published property of a way to schedule gradients, and what the plan and the "
              "trace of one step show of it, by the fastest method that does so (ByteScheduler "
              "both cuts and orders)",
          .columns = R"(
run_id environment backend model batch ranks property technique published measured method evidence
)",
          .of_runs = scheduling_tradeoff_table};
}

}  // namespace dynamiccl
