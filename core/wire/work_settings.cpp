#include "core/wire/work_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"

namespace dynamiccl {
namespace {

constexpr int kMostIterations = 10'000'000;
/// Products of ones and twos stay exact.
constexpr int kMostFactors = 30;
constexpr Micros kLongestWait{1e6};

int whole(std::string_view name, const std::string& text, int low) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < low || value > kMostIterations)
    throw Error(ErrorKind::input, fmt::format("{} is \"{}\"; give a whole number from {} to {}",
                                              name, text, low, kMostIterations));
  return value;
}

std::vector<std::vector<std::uint64_t>> shares_in(const std::string& text) {
  std::vector<std::vector<std::uint64_t>> rows;
  for (const auto& line : split(text, '/')) {
    auto& row = rows.emplace_back();
    for (const auto& share : split(line, ':'))
      row.push_back(static_cast<std::uint64_t>(whole("a share of parts", share, 0)));
  }
  return rows;
}

/// Whole shares that rise evenly from the first part to the last one, `skew` times as large.
std::vector<std::uint64_t> rising_shares(int skew, int ranks) {
  const auto steps = static_cast<std::uint64_t>(std::max(ranks - 1, 1));
  std::vector<std::uint64_t> shares;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(ranks); ++i)
    shares.push_back(steps + static_cast<std::uint64_t>(skew - 1) * i);
  return shares;
}

int skew_of(const WorkSettings& settings, int ranks) { return settings.skew.value_or(ranks); }

/// Where large parts start, as nccl-tests' do: 16 bytes of the smallest type. NCCL took 1.4 to 2.2
/// times as long on H200s for parts that started elsewhere (reports/measured/h200x2-2026-11).
constexpr std::uint64_t kAlignedElements = 16;
/// Where parts are smaller on average the rounding would show in the shares, and where a part
/// starts does not in its time.
constexpr std::uint64_t kLargePart = 64 * kAlignedElements;

/// How many elements ends of parts are multiples of: of kAlignedElements where parts are large, and
/// none would be left empty by it.
std::uint64_t rounding_of(std::uint64_t elements, const std::vector<std::uint64_t>& shares,
                          std::uint64_t all) {
  std::uint64_t least = all;
  for (const auto share : shares)
    if (share > 0) least = std::min(least, share);
  const bool large = elements / shares.size() >= kLargePart &&
                     elements / all * least + elements % all * least / all >= kAlignedElements;
  return large ? kAlignedElements : 1;
}

/// Each part ends where its share and those before it end, rounded down: it differs from its share
/// by less than the rounding, and the next one starts where it should. What is left behind the last
/// one is not in them, see end_with_rest().
std::vector<std::uint64_t> divided(std::uint64_t elements,
                                   const std::vector<std::uint64_t>& shares) {
  std::uint64_t all = 0;
  for (const auto share : shares) all += share;
  const std::uint64_t unit = rounding_of(elements, shares, all);
  std::vector<std::uint64_t> parts;
  std::uint64_t before = 0;
  std::uint64_t begin = 0;
  for (const auto share : shares) {
    before += share;
    // By quotient and rest: the product might not fit 64 bits.
    const std::uint64_t exact = elements / all * before + elements % all * before / all;
    const std::uint64_t end = exact - exact % unit;
    parts.push_back(end - begin);
    begin = end;
  }
  return parts;
}

/// Behind the part that ends last the rest shifts nothing.
std::vector<std::uint64_t> end_with_rest(std::vector<std::uint64_t> parts, std::uint64_t elements) {
  std::size_t last = 0;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sum += parts[i];
    if (parts[i] > 0) last = i;
  }
  parts[last] += elements - sum;
  return parts;
}

/// Why parts of these settings cannot be; "" = they can.
std::string parts_misfit(const WorkSettings& settings, Collective collective, int ranks) {
  if (!settings.skew && settings.parts.empty()) return "";
  const char* name = settings.parts.empty() ? "skew" : "parts";
  if (facts_of(collective).size != SizeRule::uneven)
    return fmt::format("{}: the parts of {} are alike; those of allgatherv and alltoallv differ",
                       name, name_of(collective));
  if (settings.skew && !settings.parts.empty()) return "skew and parts: give one of them";
  const std::size_t rows = settings.parts.size();
  if (rows > 1 && collective != Collective::alltoallv)
    return fmt::format("parts has {} rows: {} takes one, a share for each rank", rows,
                       name_of(collective));
  if (rows > 1 && rows != static_cast<std::size_t>(ranks))
    return fmt::format("parts has {} rows, for {} ranks: give one row, or one for each rank", rows,
                       ranks);
  for (const auto& row : settings.parts) {
    if (row.size() != static_cast<std::size_t>(ranks))
      return fmt::format("parts has {} shares in a row, for {} ranks", row.size(), ranks);
    if (std::all_of(row.begin(), row.end(), [](std::uint64_t share) { return share == 0; }))
      return "parts has a row of zeros: of nothing there are no shares (size = 0 is a call of "
             "nothing)";
  }
  return "";
}

}  // namespace

bool is_workers_own(std::string_view name) {
  // Whose step a call is of, and how often it is made there, changes nothing of it.
  return name == "memory" || name == "graph" || name == "step" || name == "step_calls" ||
         std::find(kWorkSettings.begin(), kWorkSettings.end(), name) != kWorkSettings.end();
}

Protocol WorkSettings::of(Protocol protocol) const {
  if (warmup) protocol.warmup = *warmup;
  if (iterations) {
    protocol.iterations = *iterations;
    protocol.min_iterations = std::min(protocol.min_iterations, *iterations);
  }
  // Of several calls in a sample only the first would meet cold buffers, or be entered late.
  if (!is_batched()) protocol.batch_target = Micros(0);
  return protocol;
}

WorkSettings work_settings_of(const std::map<std::string, std::string>& knobs) {
  WorkSettings settings;
  for (const auto& [name, value] : knobs) {
    if (name == "op") settings.op = parse_named<ReduceOp>(value);
    if (name == "root") settings.root = whole(name, value, 0);
    if (name == "warmup") settings.warmup = whole(name, value, 0);
    if (name == "iterations") settings.iterations = whole(name, value, 1);
    if (name == "skew") settings.skew = whole(name, value, 1);
    if (name == "parts") settings.parts = shares_in(value);
    if (name == "late") settings.late = parse_duration(value);
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
    if (!facts_of(cell.collective).reduces)
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
  if (settings.root > 0 && architecture == Architecture::ps)
    return fmt::format("root = {}: the server is the root", settings.root);
  if (settings.root > 0 && !facts_of(cell.collective).any_root)
    return fmt::format("root = {}: {} has no root; broadcast, reduce and scatter have",
                       settings.root, name);
  if (settings.root >= ranks && settings.root > 0)
    return fmt::format("root = {}: the ranks are 0 to {}", settings.root, ranks - 1);
  if (settings.late.count() > kLongestWait.count())
    return fmt::format("late = {}: at most {}", format_micros(settings.late),
                       format_micros(kLongestWait));
  if (auto misfit = parts_misfit(settings, cell.collective, ranks); !misfit.empty()) return misfit;
  if (settings.cold_cache && on_gpu) return "cold_cache: caches of GPUs are not emptied";
  return "";
}

std::vector<std::uint64_t> uneven_parts(const WorkSettings& settings, Collective collective,
                                        std::uint64_t elements, int ranks, int rank) {
  if (!settings.parts.empty())
    return end_with_rest(divided(elements, settings.parts.size() == 1
                                               ? settings.parts.front()
                                               : settings.parts.at(static_cast<std::size_t>(rank))),
                         elements);
  auto parts = divided(elements, rising_shares(skew_of(settings, ranks), ranks));
  if (collective == Collective::alltoallv)
    std::rotate(parts.begin(), parts.end() - rank, parts.end());
  return end_with_rest(std::move(parts), elements);
}

std::uint64_t least_elements(const WorkSettings& settings, int ranks) {
  if (!settings.parts.empty()) return 1;
  const auto shares = rising_shares(skew_of(settings, ranks), ranks);
  std::uint64_t all = 0;
  for (const auto share : shares) all += share;
  return (all + shares.front() - 1) / shares.front();
}

double bus_factor_of(Collective collective, int ranks, const std::string& cell_knobs) {
  const double usual = bus_bandwidth_factor(collective, ranks);
  if (collective != Collective::alltoallv) return usual;
  const auto knobs = json_or_discarded(cell_knobs);
  std::map<std::string, std::string> said;
  for (const char* name : {"skew", "parts"})
    if (knobs.is_object() && knobs.contains(name) && knobs[name].is_string())
      said[name] = knobs[name].get<std::string>();
  if (said.empty()) return usual;
  WorkSettings settings;
  try {
    settings = work_settings_of(said);
  } catch (const Error&) {
    return usual;  // such a cell is not measured
  }
  if (!parts_misfit(settings, collective, ranks).empty()) return usual;
  constexpr std::uint64_t kMany = std::uint64_t{1} << 24;
  double own = 0;
  for (int rank = 0; rank < ranks; ++rank)
    own += static_cast<double>(
        uneven_parts(settings, collective, kMany, ranks, rank)[static_cast<std::size_t>(rank)]);
  return 1 - own / ranks / static_cast<double>(kMany);
}

std::string work_part_of(const std::string& cell_knobs) {
  if (cell_knobs.empty() || cell_knobs == "{}") return "";
  const auto knobs = json_or_discarded(cell_knobs);
  std::string text;
  if (!knobs.is_object()) return text;
  // Calls of a language model's step say which of its calls they are.
  std::vector<std::string_view> names(kWorkSettings.begin(), kWorkSettings.end());
  names.insert(names.end(), {"step", "step_calls"});
  for (const auto name : names)
    if (const auto found = knobs.find(name); found != knobs.end())
      text += fmt::format("{}={};", name,
                          found->is_string() ? found->get<std::string>() : found->dump());
  return text;
}

}  // namespace dynamiccl
