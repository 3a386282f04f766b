#include "core/training/compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

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
  settings.rank = spec.rank;
  settings.threshold = spec.threshold;
  settings.clip = spec.clip;
  settings.momentum = row.momentum ? momentum : 0;
  return settings;
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

bool is_factored(int rank, std::size_t rows, std::size_t count) {
  if (rows < 2 || count / rows < 2) return false;
  constexpr std::size_t kLeastRatio = 2;
  return kLeastRatio * static_cast<std::size_t>(rank) * (rows + count / rows) < count;
}

std::optional<std::uint64_t> codec_bytes(const CodecSettings& settings, std::size_t count,
                                         std::size_t rows, std::uint64_t step) {
  const auto bits = [count](std::size_t each) { return (count * each + 7) / 8; };
  constexpr std::size_t kNumber = 4;  // a float or an index
  switch (settings.codec) {
    case Codec::none:
      return count * kNumber;
    case Codec::fp16:
    case Codec::bf16:
      return count * 2;
    case Codec::int8:
    case Codec::natural:
      return count + kNumber;
    case Codec::onebit:
      return bits(1) + 2 * kNumber;
    case Codec::ef_sign:
      return bits(1) + kNumber;
    case Codec::signsgd:
      return bits(1);
    case Codec::terngrad:
      return bits(2) + kNumber;
    case Codec::qsgd:
      return bits(static_cast<std::size_t>(settings.bits)) +
             kNumber * ((count + kQsgdBucket - 1) / kQsgdBucket);
    case Codec::topk:
    case Codec::dgc:
      return 2 * kNumber * kept_values(density_at(settings, step), count);
    case Codec::randomk:
      return kNumber * kept_values(density_at(settings, step), count);
    case Codec::threshold:
      return std::nullopt;
    case Codec::powersgd:
      if (!is_factored(settings.rank, rows, count)) return count * kNumber;
      return kNumber * static_cast<std::size_t>(settings.rank) * (rows + count / rows);
  }
  return std::nullopt;
}

const CodecPair& codec_pair(CodecKind kind, SumPlace sums) {
  for (const auto& pair : kCodecPairs)
    if (pair.kind == kind && pair.sums == sums) return pair;
  DYN_ASSERT(false, "every pair of a codec's kind and place of the sum has a row");
}

namespace {

/// Settings that only some codecs read.
std::string misplaced_setting(const CodecSpec& spec) {
  static const CodecSpec usual;
  const CodecRow& row = codec_row(spec.compression);
  const auto belongs = [](const char* key, const char* to) {
    return fmt::format("{}: belongs to {}; leave it out", key, to);
  };
  if (!row.by_density && spec.density != usual.density)
    return belongs("density", "compression = \"topk\", \"randomk\" and \"dgc\"");
  if (!row.by_density && spec.density_warmup > 0)
    return belongs("density_warmup", "compression = \"topk\", \"randomk\" and \"dgc\"");
  if (spec.compression != Codec::qsgd && spec.bits != usual.bits)
    return belongs("bits", "compression = \"qsgd\"");
  if (spec.compression != Codec::powersgd && spec.rank != usual.rank)
    return belongs("rank", "compression = \"powersgd\"");
  if (spec.compression != Codec::threshold && spec.threshold != usual.threshold)
    return belongs("threshold", "compression = \"threshold\"");
  if (spec.compression != Codec::dgc && spec.clip != usual.clip)
    return belongs("clip", "compression = \"dgc\"");
  if (spec.compression == Codec::none && spec.error_feedback != FeedbackWish::usual)
    return "error_feedback: nothing is lost without compression; leave it out";
  return "";
}

std::string feedback_contradiction(const CodecSpec& spec) {
  const CodecRow& row = codec_row(spec.compression);
  if (spec.error_feedback == FeedbackWish::on && row.feedback == FeedbackUse::never)
    return fmt::format(
        "error_feedback = \"on\" with compression = \"{}\" (illegal): a vote has no scale that a "
        "residual could be counted in; take ef-sign",
        row.name);
  if (spec.error_feedback == FeedbackWish::off && row.feedback == FeedbackUse::always)
    return fmt::format(
        "error_feedback = \"off\" with compression = \"{}\" (illegal): what it has not sent yet is "
        "how it works; take topk",
        row.name);
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
  const CodecPair& pair = codec_pair(row.kind, method.sums);
  if (pair.fit != PairFit::legal)
    return fmt::format("compression = \"{}\" with {} ({}): {}", row.name, method.name,
                       pair.fit == PairFit::partial ? "partial" : "illegal", pair.reason);
  if (synchronisation != Synchronisation::bsp)
    return fmt::format(
        "compression = \"{}\" with synchronisation = \"{}\" (partial): gradients are encoded where "
        "all workers meet in every step; what others send is offered as plain values alone",
        row.name, name_of(synchronisation));
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
