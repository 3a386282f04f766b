#include <fmt/format.h>

#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostRank = 64;

/// What is made of all workers' sums is made of plain ones.
std::string coded_average_contradiction(const TrainingSpec& spec) {
  if (spec.compression == Codec::none) return "";
  const char* with = nullptr;
  if (spec.slow_momentum > 0) with = "slow_momentum";
  if (weighs_workers(spec)) with = "shares or participants";
  if (method_row(spec.method).sums == SumPlace::neighbours &&
      spec.topology == PeerGraph::random_pairs)
    return fmt::format(
        "compression = \"{}\" with topology = \"random-pairs\" (partial): what is known of "
        "neighbours is a replica of each, and they change in every round; take ring, torus or "
        "exponential",
        name_of(spec.compression));
  if (with == nullptr) return "";
  return fmt::format(
      "compression = \"{}\" with {} (partial): averages with weights or momentum of their own are "
      "plain; leave one out",
      name_of(spec.compression), with);
}

/// Why gradients are not encoded so within groups.
std::string group_codec_contradiction(const TrainingSpec& spec) {
  if (spec.group_compression == Codec::none) return "";
  const CodecRow& row = codec_row(spec.group_compression);
  const auto refusal = [&](std::string_view why) {
    return fmt::format("group_compression = \"{}\": {}", row.name, why);
  };
  if (spec.group_size == 1)
    return refusal("belongs to group_size of 2 or more; take compression, or leave it out");
  if (row.kind == CodecKind::low_rank || row.kind == CodecKind::sketched || !row.of_all.empty())
    return refusal(
        "members of a group send each other one message each (partial); take topk, bf16 or qsgd");
  if (!row.alike)
    return refusal(
        "members of a group expect messages of one size (partial); take topk, bf16 or qsgd");
  if (row.momentum || row.votes)
    return refusal(
        "what comes of a group's sum is a gradient, with its length and without momentum "
        "(illegal); take topk or ef-sign");
  return "";
}

std::string codec_misfit(const TrainingSpec& spec) {
  if (auto reason = compression_contradiction(spec, spec.method, spec.synchronisation,
                                              spec.packing != Packing::none);
      !reason.empty())
    return reason;
  if (auto reason = coded_average_contradiction(spec); !reason.empty()) return reason;
  return group_codec_contradiction(spec);
}

using Spec = TrainingSpec;
constexpr SettingRow kCodecRows[] = {
    setting<&Spec::compression>("compression",
                                "codec of the gradients that travel; all but none lose something"),
    setting<&Spec::error_feedback>("error_feedback",
                                   "whether workers add to a gradient what encoding took "
                                   "from the last ones; auto: as is usual for the codec"),
    setting<&Spec::density>(
        "density", "topk, randomk, dgc and other sparse codecs: share of the values that are sent",
        kAboveZero, 1, "a share above 0, up to 1, as 0.01 of 1 %"),
    setting<&Spec::density_warmup>(
        "density_warmup", "sparse codecs: steps in which the density comes down from 0.25", 0),
    SettingRow{"bits", "qsgd, diana: of a value, its sign among them: 2, 4 or 8",
               [](TrainingSpec& spec, const SettingRow& row, const std::string& value) {
                 if (value != "2" && value != "4" && value != "8")
                   refuse_setting(row, value, "2, 4 or 8");
                 read_setting(row, value, spec.bits);
               },
               [](const TrainingSpec& spec) { return std::to_string(spec.bits); }},
    setting<&Spec::layer_bits>(
        "layer_bits",
        "qsgd, diana: bits in all gradients, or by size: 8 in those of up to 4096 values"),
    setting<&Spec::group_compression>(
        "group_compression",
        "group_size of 2 or more: codec of gradients within a group; compression is that of what "
        "it sends to the server"),
    setting<&Spec::rank>("rank", "powersgd: columns of a factor", 1, kMostRank),
    setting<&Spec::threshold>("threshold", "threshold: least magnitude that is sent", kAboveZero,
                              3.4e38, "a number above 0, up to 3.4e38"),
    setting<&Spec::clip>("clip_each",
                         "dgc: most of each gradient's norm, over sqrt(N) of N workers; 0: none")};

}  // namespace

SettingPart codec_part() { return {kCodecRows, codec_misfit}; }

CodecSettings codec_settings(const TrainingSpec& spec) {
  CodecSettings settings = resolve_codec(spec, spec.momentum);
  // Replicas of neighbours know what was not sent.
  if (method_row(spec.method).sums == SumPlace::neighbours) settings.feedback = false;
  return settings;
}

CodecSettings group_codec_settings(const TrainingSpec& spec) {
  CodecSpec within = spec;
  within.compression = spec.group_compression;
  within.error_feedback = FeedbackWish::usual;
  return resolve_codec(within, 0);
}

}  // namespace dynamiccl
