#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"
#include "train/spec/synchronisation.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {

/// What travels instead of a gradient's fp32 values, with less in it than they have.
enum class Codec {
  none,
  fp16,
  bf16,
  int8,
  onebit,
  ef_sign,
  signsgd,
  terngrad,
  qsgd,
  natural,
  topk,
  randomk,
  threshold,
  dgc,
  powersgd,
  stc,
  sbc,
  three_lc,
  adacomp,
  gtopk,
  diana,
  sketch,
  qsgd_adaptive,
  cocktail
};

enum class CodecKind {
  dense,      ///< every value, in a shorter type
  quantised,  ///< every value, as one of a few levels
  sparse,     ///< some of the values
  low_rank,   ///< two thin matrices instead of one
  sketched    ///< sums of values at random places of a table, then some of the values
};

/// How encoded gradients of several workers become one sum.
enum class CodecSum {
  reduced,   ///< linear: the library's all-reduce of what is encoded
  gathered,  ///< each worker's by itself, decoded and added in rank order
  merged     ///< pairs of workers make one frame of two, until there is one for all
};

/// Whether a worker adds to its next gradient what encoding has taken from the last ones.
enum class FeedbackUse {
  never,
  possible,  ///< where it is asked for
  usual,     ///< unless the experiment says otherwise
  always
};

/// "error_feedback": what the file says.
enum class FeedbackWish { usual, on, off };

template <>
struct NameTable<FeedbackWish> {
  static constexpr std::string_view what = "error feedback";
  static constexpr std::array entries{Named{FeedbackWish::usual, "auto"},
                                      Named{FeedbackWish::on, "on"},
                                      Named{FeedbackWish::off, "off"}};
};

/// "layer_bits": how many bits a value of each gradient gets.
DYN_NAMED_ENUM(
    LayerBits, "bits of a layer", '-',
    even,   ///< as many in all
    size);  ///< 8 in gradients of up to kFewValues, which are few bytes; `bits` in others

/// A codec and what it needs to know, the same on every rank.
struct CodecSettings {
  Codec codec = Codec::none;
  bool feedback = false;
  double density = 0.01;   ///< share of the values that are kept
  int density_warmup = 0;  ///< steps in which it comes down from kWarmDensity
  int bits = 4;            ///< of a value, QSGD and DIANA
  LayerBits layer_bits = LayerBits::even;
  int rank = 2;          ///< columns of a factor, PowerSGD
  double threshold = 0;  ///< least magnitude that is sent
  double clip = 0;       ///< most of a gradient's norm, of all workers together; 0 = no limit
  double momentum = 0;   ///< of a codec that takes it upon itself
};

/// Share of the values kept in a step, which counts from 0: exponentially down to `density`.
double density_at(const CodecSettings& settings, std::uint64_t step);
/// Of `count` values, at least one.
std::size_t kept_values(double density, std::size_t count);

/// Bytes of one gradient's frame in a step: of `count` values, a matrix of so many rows (1 where it
/// is none).
using CodecBytes = std::uint64_t(const CodecSettings& settings, std::size_t count, std::size_t rows,
                                 std::uint64_t step);
/// So many bits for each value, and numbers of 4 bytes besides them.
template <std::size_t kBits, std::size_t kNumbers>
std::uint64_t fixed_bytes(const CodecSettings& /*settings*/, std::size_t count,
                          std::size_t /*rows*/, std::uint64_t /*step*/) {
  return (count * kBits + 7) / 8 + 4 * kNumbers;
}
/// So many bits for each value that the density keeps, and numbers of 4 bytes besides them.
template <std::size_t kBits, std::size_t kNumbers>
std::uint64_t kept_bytes(const CodecSettings& settings, std::size_t count, std::size_t rows,
                         std::uint64_t step) {
  return fixed_bytes<kBits, kNumbers>(settings, kept_values(density_at(settings, step), count),
                                      rows, step);
}
CodecBytes level_bytes, sketch_bytes, factor_bytes;

/// All that is particular to a codec but its loops (train/codecs).
struct CodecRow {
  Codec codec;
  std::string_view name;
  CodecKind kind = CodecKind::quantised;
  CodecSum sum = CodecSum::gathered;
  FeedbackUse feedback = FeedbackUse::possible;
  bool unbiased = false;          ///< the expected value is the gradient, without error feedback
  bool momentum = false;          ///< takes the optimizer's momentum upon itself
  bool votes = false;             ///< what comes of all workers' frames has no length of its own
  bool by_density = false;        ///< `density` says how many values it keeps
  bool alike = true;              ///< a frame is as long on every worker, whatever its values
  bool on_gpus = true;            ///< kernels encode and decode it too
  bool by_bits = false;           ///< `bits` and `layer_bits` say how long a value is
  bool marked = false;            ///< a bit each of a shared sample says which values are sent
  std::string_view setting = "";  ///< one that no other codec reads
  CodecBytes* bytes = nullptr;    ///< nullptr: its values say how many
  int memories = 0;               ///< buffers of all gradients that it keeps besides a residual
  /// Why it works in sums of all workers in each step alone; empty where it works elsewhere too.
  std::string_view of_all = "";
};

// A new codec is a name above, a row here, its class in train/codecs and a row of codec_table.cpp.
inline constexpr std::array kCodecs{
    CodecRow{.codec = Codec::none,
             .name = "none",
             .kind = CodecKind::dense,
             .bytes = fixed_bytes<32, 0>},
    CodecRow{.codec = Codec::fp16,
             .name = "fp16",
             .kind = CodecKind::dense,
             .sum = CodecSum::reduced,
             .bytes = fixed_bytes<16, 0>},
    CodecRow{.codec = Codec::bf16,
             .name = "bf16",
             .kind = CodecKind::dense,
             .sum = CodecSum::reduced,
             .bytes = fixed_bytes<16, 0>},
    CodecRow{.codec = Codec::int8, .name = "int8", .bytes = fixed_bytes<8, 1>},
    CodecRow{.codec = Codec::onebit,
             .name = "onebit",
             .feedback = FeedbackUse::usual,
             .bytes = fixed_bytes<1, 2>},
    CodecRow{.codec = Codec::ef_sign,
             .name = "ef-sign",
             .feedback = FeedbackUse::usual,
             .bytes = fixed_bytes<1, 1>},
    CodecRow{.codec = Codec::signsgd,
             .name = "signsgd",
             .feedback = FeedbackUse::never,
             .votes = true,
             .bytes = fixed_bytes<1, 0>},
    CodecRow{
        .codec = Codec::terngrad, .name = "terngrad", .unbiased = true, .bytes = fixed_bytes<2, 1>},
    CodecRow{.codec = Codec::qsgd,
             .name = "qsgd",
             .unbiased = true,
             .by_bits = true,
             .bytes = level_bytes},
    CodecRow{
        .codec = Codec::natural, .name = "natural", .unbiased = true, .bytes = fixed_bytes<8, 1>},
    CodecRow{.codec = Codec::topk,
             .name = "topk",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::usual,
             .by_density = true,
             .bytes = kept_bytes<64, 0>},
    CodecRow{.codec = Codec::randomk,
             .name = "randomk",
             .kind = CodecKind::sparse,
             .sum = CodecSum::reduced,
             .feedback = FeedbackUse::usual,
             .unbiased = true,
             .by_density = true,
             .bytes = kept_bytes<32, 0>},
    CodecRow{.codec = Codec::threshold,
             .name = "threshold",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::usual,
             .alike = false,
             .on_gpus = false,
             .setting = "threshold"},
    CodecRow{.codec = Codec::dgc,
             .name = "dgc",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::always,
             .momentum = true,
             .by_density = true,
             .setting = "clip_each",
             .bytes = kept_bytes<64, 0>,
             .memories = 1},
    CodecRow{.codec = Codec::powersgd,
             .name = "powersgd",
             .kind = CodecKind::low_rank,
             .sum = CodecSum::reduced,
             .feedback = FeedbackUse::usual,
             .setting = "rank",
             .bytes = factor_bytes},
    CodecRow{.codec = Codec::stc,
             .name = "stc",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::usual,
             .by_density = true,
             .on_gpus = false,
             .bytes = kept_bytes<33, 1>},
    CodecRow{.codec = Codec::sbc,
             .name = "sbc",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::usual,
             .by_density = true,
             .on_gpus = false,
             .bytes = kept_bytes<32, 1>},
    CodecRow{.codec = Codec::three_lc,
             .name = "3lc",
             .feedback = FeedbackUse::usual,
             .alike = false,
             .on_gpus = false},
    CodecRow{.codec = Codec::adacomp,
             .name = "adacomp",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::always,
             .alike = false,
             .on_gpus = false},
    CodecRow{.codec = Codec::gtopk,
             .name = "gtopk",
             .kind = CodecKind::sparse,
             .sum = CodecSum::merged,
             .feedback = FeedbackUse::always,
             .by_density = true,
             .on_gpus = false,
             .bytes = kept_bytes<64, 0>,
             .of_all = "what loses against other workers' values goes back to who sent it, which "
                       "workers that merge with each other know; take topk"},
    CodecRow{.codec = Codec::diana,
             .name = "diana",
             .feedback = FeedbackUse::never,
             .unbiased = true,
             .on_gpus = false,
             .by_bits = true,
             .bytes = level_bytes,
             .memories = 2,
             .of_all =
                 "workers keep the sum of what all have learnt of their gradients, from every "
                 "worker's message of every step; take qsgd"},
    CodecRow{.codec = Codec::sketch,
             .name = "sketch",
             .kind = CodecKind::sketched,
             .sum = CodecSum::reduced,
             .feedback = FeedbackUse::usual,
             .by_density = true,
             .on_gpus = false,
             .bytes = sketch_bytes},
    CodecRow{.codec = Codec::qsgd_adaptive,
             .name = "qsgd-adaptive",
             .unbiased = true,
             .alike = false,
             .on_gpus = false},
    CodecRow{.codec = Codec::cocktail,
             .name = "cocktail",
             .kind = CodecKind::sparse,
             .feedback = FeedbackUse::usual,
             .by_density = true,
             .on_gpus = false,
             .marked = true,
             .bytes = kept_bytes<14, 1>}};

template <>
struct NameTable<Codec> {
  static constexpr std::string_view what = "compression";
  static constexpr auto entries = [] {
    std::array<Named<Codec>, kCodecs.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = {kCodecs[i].codec, kCodecs[i].name};
    return names;
  }();
};

constexpr const CodecRow& codec_row(Codec codec) {
  for (const CodecRow& row : kCodecs)
    if (row.codec == codec) return row;
  return kCodecs.front();  // every codec has a row: a test asks
}

/// What a training cell says of its codec, by the names of its settings.
struct CodecSpec {
  Codec compression = Codec::none;
  FeedbackWish error_feedback = FeedbackWish::usual;
  double density = 0.01;   ///< share of the values that sparse codecs send
  int density_warmup = 0;  ///< steps until it is reached
  int bits = 4;            ///< of a value, QSGD and DIANA
  LayerBits layer_bits = LayerBits::even;
  int rank = 2;              ///< of PowerSGD's factors
  double threshold = 0.001;  ///< least magnitude sent
  double clip = 0;           ///< DGC's limit of a gradient's norm; 0 = none
  /// Of gradients within a group of workers, where `compression` is of what the group sends to the
  /// server; "error_feedback" is not for it.
  Codec group_compression = Codec::none;
};

/// @param momentum of SGD, which the codec may take upon itself
CodecSettings resolve_codec(const CodecSpec& spec, double momentum);

/// Density at the beginning of a warm-up (DGC's).
inline constexpr double kWarmDensity = 0.25;
/// QSGD takes a norm of so many values each.
inline constexpr std::size_t kQsgdBucket = 512;
/// AdaComp's bins, of which each has a largest value.
inline constexpr std::size_t kAdaBin = 500;
/// LayerBits::size: gradients of up to so many values get kMostBits.
inline constexpr std::size_t kFewValues = 4096;
inline constexpr int kMostBits = 8;
/// A sketch's rows, each with a place of its own for every value, and its columns for each value
/// that is looked for in it.
inline constexpr std::size_t kSketchRows = 5;
inline constexpr std::size_t kSketchColumns = 4;

/// Whether the host's loops encode a GPU's gradients, by way of host memory: no kernels do.
bool is_encoded_by_host(const CodecSettings& settings);
/// Bits of a value in a gradient of so many.
int value_bits(const CodecSettings& settings, std::size_t count);
/// DIANA: the part of a decoded difference by which what is known of a gradient of so many values
/// changes: where nothing is said, as far as the quantiser's noise allows (1 / (1 + omega)).
double shift_rate_of(const CodecSettings& settings, std::size_t count);
/// Columns of each of a sketch's rows.
std::size_t sketch_columns(const CodecSettings& settings, std::size_t count, std::uint64_t step);
/// Whether a sketch and the values found in it are fewer bytes than all of so many.
bool is_sketched(const CodecSettings& settings, std::size_t count, std::uint64_t step);
/// Whether two factors of so many columns are less than half of the matrix.
bool is_factored(int rank, std::size_t rows, std::size_t count);

/// Bytes of one gradient in a message: what a worker gives to the library. nullopt: depends on the
/// values. A message of gathered codecs is filled up to a multiple of 4.
std::optional<std::uint64_t> codec_bytes(const CodecSettings& settings, std::size_t count,
                                         std::size_t rows, std::uint64_t step);

/// Whether a kind of codec goes with a place of the sum. Workers push frames, which servers decode,
/// and answers are plain; neighbours send how far weights went from what is known of them
/// (CHOCO-SGD).
Fit codec_fit(CodecKind kind, SumPlace sums);

/// Why the compression, and what belongs to it alone, does not go with the rest; empty when it
/// does.
std::string compression_contradiction(const CodecSpec& spec, TrainingMethod method,
                                      Synchronisation synchronisation, bool packed);

}  // namespace dynamiccl
