#include "workers/backends/nccl_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr std::array kProtocols{"ll", "ll128", "simple"};

struct NumberKnob {
  std::string_view name;
  std::optional<int> NcclSettings::*target;
  int least;
  int most;
};
constexpr std::array kNumbers{
    NumberKnob{"min_ctas", &NcclSettings::min_ctas, 1, kMostCtas},
    NumberKnob{"max_ctas", &NcclSettings::max_ctas, 1, kMostCtas},
    NumberKnob{"cga_cluster_size", &NcclSettings::cga_cluster_size, 0, 8}};
constexpr std::string_view kThresholds = "thread_thresholds";

std::optional<int> number(const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    return std::nullopt;
  return value;
}

/// NCCL's name of the function in NCCL_ALGO and NCCL_PROTO; "" where its tuning has none.
std::string_view tuned_name(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
      return "allreduce";
    case Collective::broadcast:
    case Collective::pull:
      return "broadcast";
    case Collective::reduce:
    case Collective::push:
      return "reduce";
    case Collective::allgather:
      return "allgather";
    case Collective::reduce_scatter:
      return "reducescatter";
    default:
      return "";
  }
}

}  // namespace

std::vector<std::string> nccl_algorithms(Collective collective) {
  // Those that its documentation builds of sends and receives are here, others are not.
  if (collective == Collective::allgatherv || collective == Collective::barrier) return {};
  std::vector<std::string> names{"library"};
  if (tuned_name(collective).empty()) return names;
  // Of the tree algorithms only all-reduce has one on a single host.
  std::vector<std::string> algorithms{"ring"};
  if (collective == Collective::allreduce) algorithms.emplace_back("tree");
  for (const std::string& algorithm : algorithms) {
    names.push_back(algorithm);
    for (const char* protocol : kProtocols) names.push_back(algorithm + "/" + protocol);
  }
  return names;
}

std::optional<std::string> nccl_unsupported(const CallShape& shape) {
  std::vector<std::string> known{std::string(kThresholds)};
  for (const NumberKnob& knob : kNumbers) known.emplace_back(knob.name);
  for (const auto& [name, value] : shape.knobs) {
    const auto* row = std::find_if(
        kNumbers.begin(), kNumbers.end(),
        [asked = std::string_view(name)](const NumberKnob& knob) { return knob.name == asked; });
    if (row == kNumbers.end() && name != kThresholds)
      return fmt::format("NCCL has no knob \"{}\" per cell; {}", name, suggestion(name, known));
    if (row != kNumbers.end() && !number(value, row->least, row->most))
      return fmt::format("knob {} is \"{}\"; give a number from {} to {}", name, value, row->least,
                         row->most);
  }
  if (shape.in_place &&
      (shape.collective == Collective::alltoall || shape.collective == Collective::scatter))
    return fmt::format("NCCL has no in-place {}", name_of(shape.collective));
  return std::nullopt;
}

NcclSettings nccl_settings(const CallShape& shape) {
  NcclSettings settings;
  for (const NumberKnob& knob : kNumbers) {
    const auto found = shape.knobs.find(std::string(knob.name));
    if (found != shape.knobs.end())
      settings.*knob.target = number(found->second, knob.least, knob.most);
  }
  if (const auto found = shape.knobs.find(std::string(kThresholds)); found != shape.knobs.end())
    settings.thread_thresholds = found->second;
  const std::string_view function = tuned_name(shape.collective);
  if (shape.algorithm == "library" || function.empty()) return settings;
  // Only for this function: NCCL_ALGO=tree alone would leave broadcast without any algorithm.
  const auto slash = shape.algorithm.find('/');
  settings.algorithm = fmt::format("{}:{}", function, shape.algorithm.substr(0, slash));
  if (slash != std::string::npos)
    settings.protocol = fmt::format("{}:{}", function, shape.algorithm.substr(slash + 1));
  return settings;
}

std::string describe(const NcclSettings& settings) {
  std::vector<std::string> parts;
  const auto named = [](const std::string& text) { return text.substr(text.find(':') + 1); };
  if (!settings.algorithm.empty()) parts.push_back(named(settings.algorithm));
  if (!settings.protocol.empty()) parts.back() += "/" + named(settings.protocol);
  if (settings.min_ctas) parts.push_back(fmt::format("{} CTAs at least", *settings.min_ctas));
  if (settings.max_ctas) parts.push_back(fmt::format("{} CTAs at most", *settings.max_ctas));
  if (settings.cga_cluster_size)
    parts.push_back(fmt::format("clusters of {}", *settings.cga_cluster_size));
  if (!settings.thread_thresholds.empty())
    parts.push_back("thread thresholds " + settings.thread_thresholds);
  return parts.empty() ? "library" : join(parts, ", ");
}

}  // namespace dynamiccl
