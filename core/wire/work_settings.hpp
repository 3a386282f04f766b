#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"
#include "core/wire/run_config.hpp"

namespace dynamiccl {

/// What a reduction does with the ranks' elements.
DYN_NAMED_ENUM(ReduceOp, "reduction operation", '-', sum, max, min, prod);
/// Settings of a cell (WorkCell::knobs) that say what is called and how it is timed. They are the
/// worker's to obey and no setting of a library: cells that differ in one are other work, and none
/// of them is a better choice than another.
struct WorkSettings {
  ReduceOp op = ReduceOp::sum;  ///< "op"
  int root = 0;                 ///< "root"
  std::optional<int> warmup;    ///< "warmup", "iterations": in the place of the protocol's
  std::optional<int> iterations;
  bool cold_cache = false;  ///< "cold_cache": the cell's buffers are in no cache before a sample
  /// "skew": of calls whose parts differ, how often the largest holds the smallest; parts between
  /// them rise evenly. Usual: as many as ranks.
  std::optional<int> skew;
  /// "parts", "1:0:3": shares of the parts, one for each rank. alltoallv: what each rank sends to
  /// them; with a row for each rank, "0:1/1:0", what that one sends.
  std::vector<std::vector<std::uint64_t>> parts;
  /// "late": a rank enters each timed call by up to so much after the others, by a share that is
  /// drawn anew. Its time counts from its own entering.
  Micros late{0};

  /// Whether a sample may hold several calls.
  [[nodiscard]] bool is_batched() const { return !cold_cache && late.count() == 0; }
  /// The protocol of a cell of these settings.
  [[nodiscard]] Protocol of(Protocol protocol) const;
};

inline constexpr std::array<std::string_view, 8> kWorkSettings{
    "op", "root", "warmup", "iterations", "cold_cache", "skew", "parts", "late"};
/// Those, and where the worker keeps the data and calls from.
bool is_workers_own(std::string_view name);

/// @throws Error(input) with what the value should have been
WorkSettings work_settings_of(const std::map<std::string, std::string>& knobs);

/// Why a cell of these settings cannot be measured, as far as is known before a library is asked;
/// "" = it can.
std::string work_settings_misfit(const WorkCell& cell, Architecture architecture, int ranks,
                                 bool on_gpu);

/// Elements that `rank` sends to each rank (alltoallv) or that each rank gives (allgatherv, for any
/// `rank`), of `elements` in all. Parts by `skew` are those of alltoallv's ranks by how far the
/// receiver stands behind the sender, so that every rank receives as much as it sends, but for
/// less than 16 elements of each sender. Ends of parts are rounded down, to a multiple of 16 where
/// parts are large; the last part that holds anything takes what is left.
std::vector<std::uint64_t> uneven_parts(const WorkSettings& settings, Collective collective,
                                        std::uint64_t elements, int ranks, int rank);
/// Elements of which a call over these parts leaves none empty that should hold some.
std::uint64_t least_elements(const WorkSettings& settings, int ranks);

/// bus_bandwidth_factor() of a cell with these stored settings (JSON text).
double bus_factor_of(Collective collective, int ranks, const std::string& cell_knobs);

/// Of a cell's stored settings (JSON text) those that make it other work, as text for keys; "" =
/// none.
std::string work_part_of(const std::string& cell_knobs);

}  // namespace dynamiccl
