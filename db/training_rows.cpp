#include "db/training_rows.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/vocabulary/error.hpp"
#include "train/spec/compression.hpp"
#include "train/spec/synchronisation.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {
namespace {

std::string joined_rows(const std::string& rows, const std::string& row) {
  return rows + (rows.empty() ? "" : ",\n    ") + row;
}

std::string method_rows() {
  std::string rows;
  for (const TrainingMethodRow& row : kTrainingMethods)
    rows = joined_rows(rows, fmt::format("('{}', {:d}, {:d}, {:d}, {:d}, {:d}, {:d})", row.name,
                                         row.sums == SumPlace::neighbours,
                                         row.grouping == MessageGrouping::together, row.split,
                                         crosses_barrier(row.method), row.engine.has_value(),
                                         row.sums == SumPlace::server));
  return rows;
}

/// The survey's word in its orders of communication; "NULL": it has none.
std::string_view surveyed(Synchronisation synchronisation) {
  switch (synchronisation) {
    case Synchronisation::bsp:
      return "'BSP'";
    case Synchronisation::ssp:
      return "'SSP'";
    case Synchronisation::local:
      return "'LSGD'";
    default:
      return "NULL";
  }
}

std::string synchronisation_rows() {
  std::string rows;
  for (const SynchronisationRow& row : kSynchronisations)
    rows = joined_rows(rows, fmt::format("('{}', {:d}, {:d}, {:d}, {:d}, {})", row.name,
                                         row.synchronisation == Synchronisation::bsp,
                                         row.synchronisation == Synchronisation::post_local,
                                         row.synchronisation == Synchronisation::adacomm,
                                         row.synchronisation == Synchronisation::backup,
                                         surveyed(row.synchronisation)));
  return rows;
}

/// Bits of each value, however many there are; nullopt: settings or values say how many.
std::optional<double> bits_of(const CodecRow& row) {
  if (row.codec == Codec::three_lc) return 1.6;  // as published
  const bool by_formula = row.kind == CodecKind::dense || row.kind == CodecKind::quantised;
  if (row.codec == Codec::none || row.bytes == nullptr || row.by_bits || !by_formula)
    return std::nullopt;
  constexpr std::size_t kValues = 8192;
  const auto bytes = [&](std::size_t count) { return row.bytes({}, count, 1, 0); };
  return 8.0 * static_cast<double>(bytes(2 * kValues) - bytes(kValues)) / kValues;
}

std::string codec_rows() {
  std::string rows;
  for (const CodecRow& row : kCodecs) {
    const auto bits = bits_of(row);
    rows = joined_rows(
        rows, fmt::format("('{}', {}, {:d}, {:d}, {:d}, {:d}, {:d}, {:d})", row.name,
                          bits ? fmt::format("{}", *bits) : "NULL", row.by_bits,
                          row.kind == CodecKind::sparse, row.by_density,
                          row.sum == CodecSum::gathered, row.sum == CodecSum::merged, row.marked));
  }
  return rows;
}

void put(std::string& text, std::string_view place, const std::string& rows) {
  const auto at = text.find(place);
  DYN_ASSERT(at != std::string::npos, "views.sql has a place for each kind of rows");
  text.replace(at, place.size(), rows);
}

}  // namespace

std::string with_training_rows(std::string_view views) {
  std::string text(views);
  put(text, "@methods@", method_rows());
  put(text, "@synchronisations@", synchronisation_rows());
  put(text, "@codecs@", codec_rows());
  return text;
}

}  // namespace dynamiccl
