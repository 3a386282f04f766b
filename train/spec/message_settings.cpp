#include <fmt/format.h>

#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

Bytes or_usual(Bytes said, std::uint64_t usual) { return said.count() > 0 ? said : Bytes(usual); }

std::string packing_contradiction(const TrainingSpec& spec) {
  if (spec.packing != Packing::none && !method_row(spec.method).packs)
    return fmt::format(
        "packing = \"{}\": {} sends plain values; take one of the -a2a methods, "
        "mg-wfbp or dear",
        name_of(spec.packing), name_of(spec.method));
  if (spec.packing != Packing::aggregated) return "";
  if (method_row(spec.method).split)
    return fmt::format(
        "packing = \"aggregated\": an aggregator answers with whole sums, and {} sums in halves; "
        "take bsp-a2a, wfbp-a2a, mg-wfbp or bytescheduler-a2a",
        name_of(spec.method));
  if (spec.synchronisation != Synchronisation::bsp)
    return fmt::format(
        "packing = \"aggregated\" with synchronisation = \"{}\" (partial): an aggregator sums the "
        "gradients of each step; take bsp",
        name_of(spec.synchronisation));
  return "";
}

using Spec = TrainingSpec;
constexpr SettingRow kMessageRows[] = {
    setting<&Spec::partition>("partition", "largest part of ByteScheduler and of servers"),
    setting<&Spec::credit>("credit", "bytes under way, ByteScheduler"),
    setting<&Spec::bucket>("bucket", "DeAR's groups, DDP's buckets after its first"),
    setting<&Spec::merge>("merge", "how MG-WFBP finds its groups"),
    setting<&Spec::packing>(
        "packing",
        "how gradients travel (host memory, own methods without servers); exponents: lossless; "
        "aggregated: in fixed point, summed by a process next to the nodes")};

}  // namespace

SettingPart message_part() { return {kMessageRows, packing_contradiction}; }

Bytes partition_of(const TrainingSpec& spec) { return or_usual(spec.partition, 4U << 20); }
Bytes credit_of(const TrainingSpec& spec) { return or_usual(spec.credit, 16U << 20); }
Bytes bucket_of(const TrainingSpec& spec) { return or_usual(spec.bucket, 25U << 20); }

bool leaves_a_choice(const TrainingSpec& spec) {
  switch (method_row(spec.method).choice) {
    case MethodChoice::none:
      return false;
    case MethodChoice::bucket:
      return spec.bucket.count() == 0;
    case MethodChoice::parts:
      return spec.partition.count() == 0 || spec.credit.count() == 0;
    case MethodChoice::merge:
      return spec.merge == MergeRule::optimal;
  }
  return false;
}

}  // namespace dynamiccl
