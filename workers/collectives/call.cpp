#include "workers/collectives/call.hpp"

#include <fmt/format.h>

#include <charconv>

namespace dynamiccl {
namespace {

/// A counting knob of our own algorithms, `fallback` unless said.
std::size_t count_of(const WorkCell& cell, const char* name, std::size_t fallback,
                     std::size_t most) {
  const auto knob = cell.knobs.find(name);
  if (knob == cell.knobs.end()) return fallback;
  std::size_t value = 0;
  const std::string& text = knob->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > most)
    throw Error(ErrorKind::input, fmt::format("knob {} is \"{}\"; give a whole number from 1 to {}",
                                              name, text, most));
  return value;
}

}  // namespace

Pipelining pipelining_of(const WorkCell& cell) {
  Pipelining pipelining;
  if (const auto knob = cell.knobs.find("segment_bytes"); knob != cell.knobs.end()) {
    const Bytes size = parse_bytes(knob->second);
    if (size.count() < 64 || size.count() % 8 != 0)
      throw Error(ErrorKind::input,
                  fmt::format("knob segment_bytes is \"{}\"; give at least 64 B, a multiple of 8 B",
                              knob->second));
    pipelining.segment_bytes = size.count();
  }
  pipelining.depth = count_of(cell, "pipeline_depth", pipelining.depth, 64);
  pipelining.shards = count_of(cell, "shards", pipelining.shards, 256);
  return pipelining;
}

}  // namespace dynamiccl
