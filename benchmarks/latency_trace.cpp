#include "benchmarks/latency_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json_problem.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "trace files are little-endian");

constexpr double kStepsPerE = 64;

/// @returns how many calls follow, as the head says
std::size_t parse_head(const std::string& line, LatencyTrace& trace) {
  const json head = parsed_json(line);
  trace.backend = head.at("backend").get<std::string>();
  trace.algorithm = head.at("algorithm").get<std::string>();
  trace.size = Bytes{head.at("size_bytes").get<std::uint64_t>()};
  trace.ranks = head.at("ranks").get<int>();
  if (!head.at("load_at").is_null()) trace.load_at = head.at("load_at").get<std::size_t>();
  trace.conditions = head.at("conditions");
  return head.at("calls").get<std::size_t>();
}

}  // namespace

std::uint16_t trace_code(Micros latency) {
  const double nanoseconds = std::max(1.0, latency.count() * 1e3);
  return static_cast<std::uint16_t>(
      std::clamp(std::lround(kStepsPerE * std::log(nanoseconds)), 0L, 65535L));
}

Micros LatencyTrace::latency(std::size_t call) const {
  return Micros{std::exp(codes.at(call) / kStepsPerE) / 1e3};
}

std::string trace_text(const LatencyTrace& trace) {
  const json head{{"backend", trace.backend},
                  {"algorithm", trace.algorithm},
                  {"size_bytes", trace.size.count()},
                  {"ranks", trace.ranks},
                  {"load_at", trace.load_at ? json(*trace.load_at) : json()},
                  {"conditions", trace.conditions},
                  {"calls", trace.codes.size()}};
  std::string text = head.dump() + "\n";
  text.append(reinterpret_cast<const char*>(trace.codes.data()),
              trace.codes.size() * sizeof(std::uint16_t));
  return text;
}

std::vector<LatencyTrace> parse_traces(const std::string& text, const std::string& source) {
  std::vector<LatencyTrace> traces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    LatencyTrace trace;
    std::size_t calls = 0;
    try {
      calls = parse_head(text.substr(at, end - at), trace);
    } catch (const json::exception& error) {
      throw Error(ErrorKind::data,
                  fmt::format("{}: trace {} has a damaged head: {}; record it anew with "
                              "scripts/record_traces.sh",
                              source, traces.size() + 1, json_problem(error)));
    }
    // Before memory is taken for them.
    if (end == std::string::npos || calls > (text.size() - end - 1) / sizeof(std::uint16_t))
      throw Error(ErrorKind::data, fmt::format("{}: trace {} ends early; record it anew with "
                                               "scripts/record_traces.sh",
                                               source, traces.size() + 1));
    trace.codes.resize(calls);
    const std::size_t bytes = calls * sizeof(std::uint16_t);
    std::memcpy(trace.codes.data(), text.data() + end + 1, bytes);
    at = end + 1 + bytes;
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace dynamiccl
