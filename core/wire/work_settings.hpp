#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

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

  /// The protocol of a cell of these settings.
  [[nodiscard]] Protocol of(Protocol protocol) const;
};

inline constexpr std::array<std::string_view, 5> kWorkSettings{"op", "root", "warmup", "iterations",
                                                               "cold_cache"};
/// Those, and where the worker keeps the data and calls from.
bool is_workers_own(std::string_view name);

/// @throws Error(input) with what the value should have been
WorkSettings work_settings_of(const std::map<std::string, std::string>& knobs);

/// Why a cell of these settings cannot be measured, as far as is known before a library is asked;
/// "" = it can.
std::string work_settings_misfit(const WorkCell& cell, Architecture architecture, int ranks,
                                 bool on_gpu);

/// Of a cell's stored settings (JSON text) those that make it other work, as text for keys; "" =
/// none.
std::string work_part_of(const std::string& cell_knobs);

}  // namespace dynamiccl
