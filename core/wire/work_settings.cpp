#include "core/wire/work_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostIterations = 10'000'000;
/// Products of ones and twos stay exact.
constexpr int kMostFactors = 30;

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reduce ||
         collective == Collective::reduce_scatter;
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce;
}

int whole(std::string_view name, const std::string& text, int low) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > kMostIterations)
    throw Error(ErrorKind::input, fmt::format("{} is \"{}\"; give a whole number from {} to {}",
                                              name, text, low, kMostIterations));
  return value;
}

}  // namespace

bool is_workers_own(std::string_view name) {
  return name == "memory" || name == "graph" ||
         std::find(kWorkSettings.begin(), kWorkSettings.end(), name) != kWorkSettings.end();
}

Protocol WorkSettings::of(Protocol protocol) const {
  if (warmup) protocol.warmup = *warmup;
  if (iterations) {
    protocol.iterations = *iterations;
    protocol.min_iterations = std::min(protocol.min_iterations, *iterations);
  }
  // Of several calls in a sample only the first would meet cold buffers.
  if (cold_cache) protocol.batch_target = Micros(0);
  return protocol;
}

WorkSettings work_settings_of(const std::map<std::string, std::string>& knobs) {
  WorkSettings settings;
  for (const auto& [name, value] : knobs) {
    if (name == "op") settings.op = parse_named<ReduceOp>(value);
    if (name == "root") settings.root = whole(name, value, 0);
    if (name == "warmup") settings.warmup = whole(name, value, 0);
    if (name == "iterations") settings.iterations = whole(name, value, 1);
    if (name != "cold_cache") continue;
    if (value != "0" && value != "1" && value != "true" && value != "false")
      throw Error(ErrorKind::input, fmt::format("cold_cache is \"{}\"; give true or false", value));
    settings.cold_cache = value == "1" || value == "true";
  }
  return settings;
}

std::string work_settings_misfit(const WorkCell& cell, Architecture architecture, int ranks,
                                 bool on_gpu) {
  WorkSettings settings;
  try {
    settings = work_settings_of(cell.knobs);
  } catch (const Error& error) {
    return error.what();
  }
  const auto name = name_of(cell.collective);
  if (settings.op != ReduceOp::sum) {
    const auto op = name_of(settings.op);
    if (architecture == Architecture::ps) return fmt::format("op = \"{}\": a server sums", op);
    if (!reduces(cell.collective))
      return fmt::format("op = \"{}\": {} reduces nothing; allreduce, reduce and reduce_scatter do",
                         op, name);
    if (cell.algorithm == "own_ring") return fmt::format("op = \"{}\": own_ring sums", op);
    if (on_gpu) return fmt::format("op = \"{}\": results on GPUs are checked as sums alone", op);
    if (cell.datatype == DataType::float16 || cell.datatype == DataType::bfloat16)
      return fmt::format("op = \"{}\": MPI and Gloo have no {}, and our own function sums", op,
                         name_of(cell.datatype));
    if (settings.op == ReduceOp::prod && ranks > kMostFactors)
      return fmt::format("products over {} ranks are not exact, so they could not be verified",
                         ranks);
  }
  if (settings.root > 0 && (architecture == Architecture::ps || !has_root(cell.collective)))
    return architecture == Architecture::ps
               ? fmt::format("root = {}: the server is the root", settings.root)
               : fmt::format("root = {}: {} has no root; broadcast and reduce have", settings.root,
                             name);
  if (settings.root >= ranks && settings.root > 0)
    return fmt::format("root = {}: the ranks are 0 to {}", settings.root, ranks - 1);
  if (settings.cold_cache && on_gpu) return "cold_cache: caches of GPUs are not emptied";
  return "";
}

std::string work_part_of(const std::string& cell_knobs) {
  if (cell_knobs.empty() || cell_knobs == "{}") return "";
  const auto knobs = json_or_discarded(cell_knobs);
  std::string text;
  if (!knobs.is_object()) return text;
  for (const auto name : kWorkSettings)
    if (const auto found = knobs.find(name); found != knobs.end())
      text += fmt::format("{}={};", name,
                          found->is_string() ? found->get<std::string>() : found->dump());
  return text;
}

}  // namespace dynamiccl
