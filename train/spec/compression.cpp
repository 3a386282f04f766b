#include "train/spec/compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dynamiccl {
namespace {

constexpr std::size_t kNumber = 4;  ///< bytes of a float or an index

}  // namespace

CodecSettings resolve_codec(const CodecSpec& spec, double momentum) {
  const CodecRow& row = codec_row(spec.compression);
  CodecSettings settings;
  settings.codec = spec.compression;
  settings.feedback =
      row.feedback == FeedbackUse::always ||
      (spec.error_feedback == FeedbackWish::usual ? row.feedback == FeedbackUse::usual
                                                  : spec.error_feedback == FeedbackWish::on);
  settings.density = spec.density;
  settings.density_warmup = spec.density_warmup;
  settings.bits = spec.bits;
  settings.layer_bits = spec.layer_bits;
  settings.rank = spec.rank;
  settings.threshold = spec.threshold;
  settings.clip = spec.clip;
  settings.momentum = row.momentum ? momentum : 0;
  return settings;
}

bool is_encoded_by_host(const CodecSettings& settings) {
  return !codec_row(settings.codec).on_gpus || settings.layer_bits != LayerBits::even;
}

double density_at(const CodecSettings& settings, std::uint64_t step) {
  const auto warmup = static_cast<std::uint64_t>(settings.density_warmup);
  if (step >= warmup || settings.density >= kWarmDensity) return settings.density;
  const double done = static_cast<double>(step) / static_cast<double>(warmup);
  return kWarmDensity * std::pow(settings.density / kWarmDensity, done);
}

std::size_t kept_values(double density, std::size_t count) {
  const auto kept = static_cast<std::size_t>(std::ceil(density * static_cast<double>(count)));
  return std::clamp<std::size_t>(kept, 1, std::max<std::size_t>(count, 1));
}

int value_bits(const CodecSettings& settings, std::size_t count) {
  return settings.layer_bits == LayerBits::size && count <= kFewValues ? kMostBits : settings.bits;
}

double shift_rate_of(const CodecSettings& settings, std::size_t count) {
  const auto values = static_cast<double>(std::min(count, kQsgdBucket));
  const double levels = (1 << (value_bits(settings, count) - 1)) - 1;
  // QSGD's bound of its variance over the square of what it encodes.
  const double omega = std::min(values / (levels * levels), std::sqrt(values) / levels);
  return 1 / (1 + omega);
}

std::size_t sketch_columns(const CodecSettings& settings, std::size_t count, std::uint64_t step) {
  return kSketchColumns * kept_values(density_at(settings, step), count);
}

bool is_sketched(const CodecSettings& settings, std::size_t count, std::uint64_t step) {
  const std::size_t kept = kept_values(density_at(settings, step), count);
  return 1 + kSketchRows * sketch_columns(settings, count, step) + kept < count;
}

bool is_factored(int rank, std::size_t rows, std::size_t count) {
  if (rows < 2 || count / rows < 2) return false;
  constexpr std::size_t kLeastRatio = 2;
  return kLeastRatio * static_cast<std::size_t>(rank) * (rows + count / rows) < count;
}

std::uint64_t level_bytes(const CodecSettings& settings, std::size_t count, std::size_t /*rows*/,
                          std::uint64_t /*step*/) {
  return (count * static_cast<std::size_t>(value_bits(settings, count)) + 7) / 8 +
         kNumber * ((count + kQsgdBucket - 1) / kQsgdBucket);
}

std::uint64_t sketch_bytes(const CodecSettings& settings, std::size_t count, std::size_t /*rows*/,
                           std::uint64_t step) {
  if (!is_sketched(settings, count, step)) return count * kNumber;
  return kNumber * (1 + kSketchRows * sketch_columns(settings, count, step) +
                    kept_values(density_at(settings, step), count));
}

std::uint64_t factor_bytes(const CodecSettings& settings, std::size_t count, std::size_t rows,
                           std::uint64_t /*step*/) {
  if (!is_factored(settings.rank, rows, count)) return count * kNumber;
  return kNumber * static_cast<std::size_t>(settings.rank) * (rows + count / rows);
}

std::optional<std::uint64_t> codec_bytes(const CodecSettings& settings, std::size_t count,
                                         std::size_t rows, std::uint64_t step) {
  CodecBytes* const bytes = codec_row(settings.codec).bytes;
  return bytes != nullptr ? std::optional(bytes(settings, count, rows, step)) : std::nullopt;
}

Fit codec_fit(CodecKind kind, SumPlace sums) {
  const bool factors = kind == CodecKind::low_rank;
  if ((!factors && kind != CodecKind::sketched) || sums == SumPlace::all_reduce) return {};
  if (sums == SumPlace::server)
    return {PairFit::illegal,
            factors
                ? "the second factor is computed from the sum of the first, which workers would "
                  "have to pull in between; take a method that all-reduces"
                : "which values are sent is seen in the sum of all workers' sketches, which "
                  "workers would have to pull in between; take a method that all-reduces"};
  return {PairFit::partial,
          factors
              ? "the second factor is computed from the sum of the first over all workers, whom "
                "neighbours do not know; take topk or qsgd"
              : "which values are sent is seen in the sum of all workers' sketches, which "
                "neighbours do not know; take topk"};
}

namespace {

/// Names of the codecs of which this is so, as a file says them.
template <class F>
std::string codecs_that(F&& is_so) {
  std::string names;
  for (const CodecRow& row : kCodecs)
    if (is_so(row)) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", row.name);
  return names;
}

/// Settings that only some codecs read, at either level.
std::string misplaced_setting(const CodecSpec& spec) {
  static const CodecSpec usual;
  struct Setting {
    std::string_view key;
    bool said;
  };
  const Setting settings[] = {{"density", spec.density != usual.density},
                              {"density_warmup", spec.density_warmup > 0},
                              {"bits", spec.bits != usual.bits},
                              {"layer_bits", spec.layer_bits != usual.layer_bits},
                              {"rank", spec.rank != usual.rank},
                              {"threshold", spec.threshold != usual.threshold},
                              {"clip_each", spec.clip != usual.clip}};
  for (const auto& [key, said] : settings) {
    const auto reads = [key = key](const CodecRow& row) {
      return (row.by_density && key.starts_with("density")) ||
             (row.by_bits && key.ends_with("bits")) || row.setting == key;
    };
    if (said && !reads(codec_row(spec.compression)) && !reads(codec_row(spec.group_compression)))
      return fmt::format("{}: belongs to compression = {}; leave it out", key, codecs_that(reads));
  }
  if (spec.compression == Codec::none && spec.error_feedback != FeedbackWish::usual)
    return spec.group_compression == Codec::none
               ? "error_feedback: nothing is lost without compression; leave it out"
               : "error_feedback: it is that of compression, on the way to the server; within a "
                 "group it is as usual for the codec (partial); leave it out";
  return "";
}

std::string feedback_contradiction(const CodecSpec& spec) {
  const CodecRow& row = codec_row(spec.compression);
  if (spec.error_feedback == FeedbackWish::on && row.feedback == FeedbackUse::never)
    return fmt::format("error_feedback = \"on\" with compression = \"{}\" (illegal): {}", row.name,
                       row.unbiased
                           ? "what it has learnt of the gradients stands for a residual; take qsgd"
                           : "a vote has no scale that a residual could be counted in; take "
                             "ef-sign");
  if (spec.error_feedback == FeedbackWish::off && row.feedback == FeedbackUse::always)
    return fmt::format(
        "error_feedback = \"off\" with compression = \"{}\" (illegal): what it has not sent yet is "
        "how it works; take topk",
        row.name);
  return "";
}

/// What weights of neighbours need of a codec: less of a way each time, without help.
std::string gossip_misfit(const CodecSpec& spec) {
  const CodecRow& row = codec_row(spec.compression);
  const auto refusal = [&](const char* fit, const char* why) {
    return fmt::format("compression = \"{}\" with neighbours ({}): {}", row.name, fit, why);
  };
  if (spec.error_feedback == FeedbackWish::on)
    return refusal("illegal",
                   "replicas know what was not sent, which error feedback would send twice; leave "
                   "error_feedback out");
  if (row.feedback == FeedbackUse::never)
    return refusal("illegal", "signs alone do not say how far weights went; take ef-sign");
  if (row.momentum)
    return refusal("illegal", "momentum is of gradients, and weights are sent; take topk");
  if (row.kind == CodecKind::sparse && row.unbiased)
    return refusal("illegal",
                   "its values are made larger by what is left out, so that replicas overshoot; "
                   "take topk");
  if (!row.alike) return refusal("partial", "neighbours expect messages of one size; take topk");
  return "";
}

std::string synchronisation_misfit(const CodecRow& row, const TrainingMethodRow& method,
                                   Synchronisation synchronisation) {
  const auto refusal = [&](PairFit fit, std::string_view why) {
    return fmt::format("compression = \"{}\" with synchronisation = \"{}\" ({}): {}", row.name,
                       name_of(synchronisation), fit == PairFit::partial ? "partial" : "illegal",
                       why);
  };
  const Fit& with = synchronisation_row(synchronisation).coded;
  if (with.fit != PairFit::legal) return refusal(with.fit, with.reason);
  if (row.votes && synchronisation != Synchronisation::bsp)
    return refusal(PairFit::illegal,
                   "a vote is all workers' on one step's gradients; take ef-sign");
  if (row.momentum && synchronisation == Synchronisation::local)
    return refusal(PairFit::illegal,
                   "what workers do by themselves between two meetings needs its momentum, which "
                   "the codec would take upon itself; take topk");
  if (!row.alike && method.sums == SumPlace::server && !is_asynchronous(synchronisation))
    return refusal(PairFit::partial,
                   "a server's place for a message is ready before it comes, and how long it is "
                   "depends on its values; take topk, or ssp or asp, whose messages are announced");
  return "";
}

}  // namespace

std::string compression_contradiction(const CodecSpec& spec, TrainingMethod name,
                                      Synchronisation synchronisation, bool packed) {
  if (auto reason = misplaced_setting(spec); !reason.empty()) return reason;
  if (spec.compression == Codec::none) return "";
  if (auto reason = feedback_contradiction(spec); !reason.empty()) return reason;
  const CodecRow& row = codec_row(spec.compression);
  const TrainingMethodRow& method = method_row(name);
  const Fit pair = codec_fit(row.kind, method.sums);
  if (pair.fit != PairFit::legal)
    return fmt::format("compression = \"{}\" with {} ({}): {}", row.name, method.name,
                       pair.fit == PairFit::partial ? "partial" : "illegal", pair.reason);
  if (!row.of_all.empty() && method.sums != SumPlace::all_reduce)
    return fmt::format("compression = \"{}\" with {} (partial): {}", row.name, method.name,
                       row.of_all);
  if (method.sums == SumPlace::neighbours)
    if (auto reason = gossip_misfit(spec); !reason.empty()) return reason;
  if (auto reason = synchronisation_misfit(row, method, synchronisation); !reason.empty())
    return reason;
  if (method.engine)
    return fmt::format(
        "compression = \"{}\" with {} (partial): the library's own engine sends what it computes; "
        "take wfbp-a2a",
        row.name, method.name);
  if (method.split)
    return fmt::format(
        "compression = \"{}\" with {} (illegal): half of a sum is no gradient that could be "
        "encoded; take wfbp-a2a, mg-wfbp or bytescheduler-a2a",
        row.name, method.name);
  if (packed)
    return fmt::format(
        "compression = \"{}\" with packing: each says in what form gradients travel; leave one out",
        row.name);
  if (row.kind == CodecKind::low_rank && method.grouping == MessageGrouping::parts)
    return fmt::format(
        "compression = \"{}\" with {} (partial): parts of {} cut a matrix, which is factored "
        "whole; "
        "take wfbp-a2a or mg-wfbp",
        row.name, method.name, method.name);
  return "";
}

}  // namespace dynamiccl
