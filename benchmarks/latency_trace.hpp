#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// Latencies of one key under one setting, call by call, as a machine gave them: what the trigger
/// is judged on.
struct LatencyTrace {
  std::string backend;
  std::string algorithm;
  Bytes size;
  int ranks = 2;
  /// The first call made after other work had been started on the ranks' cores; nullopt: none was.
  std::optional<std::size_t> load_at;
  nlohmann::json conditions = nlohmann::json::object();  ///< machine, pressure before and after
  std::vector<std::uint16_t> codes;                      ///< one per call, see trace_code()

  [[nodiscard]] Micros latency(std::size_t call) const;
};

/// 64 ln(nanoseconds), rounded: steps of 1.6 %, far below what calls differ by themselves.
std::uint16_t trace_code(Micros latency);

/// File: one or more traces, each a line of JSON with "calls" and the fields above, then as many
/// 16-bit little-endian codes. Compressed from outside (xz).
std::string trace_text(const LatencyTrace& trace);

/// @throws Error(data) when `text` is damaged; `source` names it
std::vector<LatencyTrace> parse_traces(const std::string& text, const std::string& source);

}  // namespace dynamiccl
