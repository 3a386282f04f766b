#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// How gradients are made equal on all workers (D.3). A name here is a preset: its row below says
/// what it does, and nothing outside this folder compares the name. A2A: no server.
enum class TrainingMethod {
  bsp_ps,
  wfbp_ps,
  bytescheduler_ps,
  bsp_a2a,
  wfbp_a2a,
  mg_wfbp,
  bytescheduler_a2a,
  dear,
  d_psgd,  ///< gossip: workers average weights with their neighbours
  ddp      ///< the live baseline: PyTorch DDP's own engine, which brings its transport (Gloo) along
};

/// Who sums: ranks that are servers, all workers together, or each worker with its neighbours.
enum class SumPlace { server, all_reduce, neighbours };
/// Which gradients make up a message.
enum class MessageGrouping {
  together,  ///< all of them
  alone,     ///< each by itself
  merged,    ///< as the merge rule finds best for the costs of this regime
  buckets,   ///< neighbours up to TrainingSpec::bucket
  parts,     ///< neighbours up to TrainingSpec::partition
  filled     ///< buckets that end with the gradient that fills them, the first one small
};
/// When a message is sent.
enum class SendOrder {
  after_backward,  ///< none before the last gradient is ready
  as_ready,        ///< in the order of the backward pass, each when its gradients are ready
  by_urgency  ///< of those ready the one that the next forward pass needs first, within a credit
};
/// What the next step waits for, where all ranks do the same step (Synchronisation::bsp).
enum class StepBarrier {
  all_gradients,  ///< until every sum is there
  own_gradients   ///< a layer's forward pass for its own sums only: across the barrier
};
/// What a method finds for itself where the file does not say it.
enum class MethodChoice { none, bucket, parts, merge };
/// What the published comparison found of a schedule, against the plain one of its architecture;
/// how much that is, is the reader's.
enum class PublishedStanding {
  unknown,
  best_below_intensity,  ///< the fastest where a model computes little per parameter, else better
  best_above_intensity,  ///< the fastest where it computes much
  better,
  worse
};

/// All that is particular to a method, as schedule (order, grouping, barrier, choice) x place of
/// the sum. How often workers meet is TrainingSpec's `synchronisation` (synchronisation.hpp says
/// what goes with which place), and what travels its `packing`, where `packs` allows it.
struct TrainingMethodRow {
  TrainingMethod method;
  std::string_view name;
  SumPlace sums = SumPlace::all_reduce;
  SendOrder order = SendOrder::as_ready;
  MessageGrouping grouping = MessageGrouping::alone;
  StepBarrier barrier = StepBarrier::all_gradients;
  bool split = false;  ///< a sum is two messages: a reduce-scatter, then an all-gather
  bool packs = false;  ///< its messages may be packed
  /// A library's own engine does it, over this backend only; nullopt: this program's exchange.
  std::optional<Backend> engine = std::nullopt;
  MethodChoice choice = MethodChoice::none;
  PublishedStanding published = PublishedStanding::unknown;
};

// A new method of the parts that exist is a name above and a row here.
inline constexpr std::array kTrainingMethods{
    TrainingMethodRow{.method = TrainingMethod::bsp_ps,
                      .name = "bsp-ps",
                      .sums = SumPlace::server,
                      .order = SendOrder::after_backward,
                      .grouping = MessageGrouping::together},
    TrainingMethodRow{.method = TrainingMethod::wfbp_ps,
                      .name = "wfbp-ps",
                      .sums = SumPlace::server,
                      .published = PublishedStanding::better},
    TrainingMethodRow{.method = TrainingMethod::bytescheduler_ps,
                      .name = "bytescheduler-ps",
                      .sums = SumPlace::server,
                      .order = SendOrder::by_urgency,
                      .barrier = StepBarrier::own_gradients,
                      .published = PublishedStanding::best_above_intensity},
    TrainingMethodRow{.method = TrainingMethod::bsp_a2a,
                      .name = "bsp-a2a",
                      .grouping = MessageGrouping::together,
                      .packs = true},
    TrainingMethodRow{.method = TrainingMethod::wfbp_a2a,
                      .name = "wfbp-a2a",
                      .packs = true,
                      .published = PublishedStanding::better},
    TrainingMethodRow{.method = TrainingMethod::mg_wfbp,
                      .name = "mg-wfbp",
                      .grouping = MessageGrouping::merged,
                      .packs = true,
                      .choice = MethodChoice::merge,
                      .published = PublishedStanding::best_below_intensity},
    TrainingMethodRow{.method = TrainingMethod::bytescheduler_a2a,
                      .name = "bytescheduler-a2a",
                      .order = SendOrder::by_urgency,
                      .grouping = MessageGrouping::parts,
                      .barrier = StepBarrier::own_gradients,
                      .packs = true,
                      .choice = MethodChoice::parts,
                      .published = PublishedStanding::worse},
    TrainingMethodRow{.method = TrainingMethod::dear,
                      .name = "dear",
                      .grouping = MessageGrouping::buckets,
                      .barrier = StepBarrier::own_gradients,
                      .split = true,
                      .packs = true,
                      .choice = MethodChoice::bucket,
                      .published = PublishedStanding::better},
    TrainingMethodRow{.method = TrainingMethod::d_psgd,
                      .name = "d-psgd",
                      .sums = SumPlace::neighbours,
                      .order = SendOrder::after_backward,
                      .grouping = MessageGrouping::together},
    TrainingMethodRow{.method = TrainingMethod::ddp,
                      .name = "ddp",
                      .grouping = MessageGrouping::filled,
                      .engine = Backend::gloo}};

template <>
struct NameTable<TrainingMethod> {
  static constexpr std::string_view what = "training method";
  static constexpr auto entries = [] {
    std::array<Named<TrainingMethod>, kTrainingMethods.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i)
      names[i] = {kTrainingMethods[i].method, kTrainingMethods[i].name};
    return names;
  }();
};

/// What a spec or plan that says nothing does: one all-reduce of all gradients.
inline constexpr TrainingMethod kPlainestMethod = TrainingMethod::bsp_a2a;
/// Each gradient by itself, all-reduced as soon as it is ready: what paths are tried with.
inline constexpr TrainingMethod kOneByOneMethod = TrainingMethod::wfbp_a2a;

constexpr const TrainingMethodRow& method_row(TrainingMethod method) {
  for (const TrainingMethodRow& row : kTrainingMethods)
    if (row.method == method) return row;
  return kTrainingMethods.front();  // every method has a row: a test asks
}

/// Whose group a launch of the method belongs to: "ring" is every launch without servers.
constexpr Architecture architecture_of(TrainingMethod method) {
  return method_row(method).sums == SumPlace::server ? Architecture::ps : Architecture::ring;
}

/// True when the next forward pass starts before all gradients are in (ByteScheduler, DeAR).
constexpr bool crosses_barrier(TrainingMethod method) {
  return method_row(method).barrier == StepBarrier::own_gradients;
}

}  // namespace dynamiccl
