#include "tuner/export/nccl_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace dynamiccl {
namespace {

constexpr std::size_t kAllReduce = 4;
using Launch = std::map<std::string, std::string>;

std::optional<std::size_t> function_of(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
    case Collective::pull:
      return 0;
    case Collective::reduce:
    case Collective::push:
      return 1;
    case Collective::allgather:
      return 2;
    case Collective::reduce_scatter:
      return 3;
    case Collective::allreduce:
      return kAllReduce;
    default:
      return std::nullopt;
  }
}

template <std::size_t n>
std::uint8_t choice(const std::array<std::string_view, n>& names, const std::string& name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](std::string_view known) {
    return known.size() == name.size() &&
           std::equal(known.begin(), known.end(), name.begin(), [](char a, char b) {
             return std::tolower(static_cast<unsigned char>(a)) ==
                    std::tolower(static_cast<unsigned char>(b));
           });
  });
  return found == names.end() ? CallCell::kAny : static_cast<std::uint8_t>(found - names.begin());
}

std::string knob(const Setting& setting, const std::string& name) {
  const auto found = setting.call_knobs.find(name);
  return found == setting.call_knobs.end() ? "" : found->second;
}

/// ln of what the row gains over the default; a row without evidence counts a little.
double gain(const TableEntry& entry) {
  const TableEvidence& e = entry.evidence;
  if (e.default_us <= 0 || e.tuned_us <= 0) return entry.is_default() ? 0 : 0.01;
  return std::log(e.default_us / e.tuned_us);
}

Launch winning_launch(const std::vector<const TableEntry*>& entries) {
  std::map<Launch, double> gains;
  for (const TableEntry* entry : entries) gains[entry->setting.launch_knobs] += gain(*entry);
  const auto best = std::max_element(
      gains.begin(), gains.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return best == gains.end() || best->second < 0 ? Launch{} : best->first;
}

/// Rows of one communicator size and function over all sizes: each bin takes the nearest row's
/// cell.
void add_rows(std::vector<CallRow>& rows, unsigned ranks, std::size_t function,
              std::vector<const TableEntry*> entries) {
  std::sort(entries.begin(), entries.end(), [](const TableEntry* a, const TableEntry* b) {
    return a->key.task.bin < b->key.task.bin;
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto bin = static_cast<std::size_t>(entries[i]->key.task.bin.log2);
    const std::size_t first = i == 0 ? 0 : rows.back().last_bin + 1;
    // Half way to the next one; a tie goes to the smaller size.
    const std::size_t last =
        i + 1 == entries.size()
            ? kCallBins - 1
            : (bin + static_cast<std::size_t>(entries[i + 1]->key.task.bin.log2)) / 2;
    const CallCell cell = call_cell(entries[i]->setting);
    if (i > 0 && rows.back().cell == cell) {
      rows.back().last_bin = last;
    } else {
      rows.push_back({ranks, 0, function, first, last, cell});
    }
  }
}

}  // namespace

CallCell call_cell(const Setting& setting) {
  CallCell cell;
  const auto slash = setting.algorithm.find('/');
  cell.algorithm = choice(kCallAlgorithmNames, setting.algorithm.substr(0, slash));
  cell.protocol =
      choice(kCallProtocolNames, slash == std::string::npos ? knob(setting, "protocol")
                                                            : setting.algorithm.substr(slash + 1));
  std::string channels = knob(setting, "channels");
  if (channels.empty()) channels = knob(setting, "max_ctas");
  if (!channels.empty())
    cell.channels = static_cast<std::uint8_t>(std::clamp(std::atoi(channels.c_str()), 0, 64));
  return cell;
}

NcclSettings nccl_settings(const std::vector<TableEntry>& entries) {
  NcclSettings result;
  std::vector<const TableEntry*> usable;
  for (const TableEntry& entry : entries)
    if (entry.key.task.backend == Backend::nccl && function_of(entry.key.task.collective))
      usable.push_back(&entry);
  const Launch launch = winning_launch(usable);
  std::map<std::pair<unsigned, std::size_t>, std::vector<const TableEntry*>> by_function;
  std::size_t elsewhere = 0;
  for (const TableEntry* entry : usable) {
    if (entry->setting.launch_knobs != launch) {
      ++elsewhere;
      continue;
    }
    by_function[{static_cast<unsigned>(entry->key.task.group_size),
                 *function_of(entry->key.task.collective)}]
        .push_back(entry);
  }
  if (elsewhere > 0)
    result.notes.push_back(fmt::format(
        "{} rows want other launch settings than the one that gains most; a job has one "
        "environment, so they take the nearest size's setting",
        elsewhere));
  for (const auto& [key, rows] : by_function) add_rows(result.rows, key.first, key.second, rows);
  unsigned ceiling = 0;
  bool open = false;
  for (const CallRow& row : result.rows) {
    ceiling = std::max<unsigned>(ceiling, row.cell.channels);
    open = open || row.cell.channels == 0;
  }
  // What has no rows would rise to the ceiling uncapped.
  const std::vector<CallRow> known = result.rows;
  for (const CallRow& row : known) {
    if (row.function != kAllReduce || row.cell.channels == 0) continue;
    for (std::size_t function = 0; function < kAllReduce; ++function)
      if (!by_function.contains({row.ranks, function}))
        result.rows.push_back({row.ranks,
                               0,
                               function,
                               row.first_bin,
                               row.last_bin,
                               {CallCell::kAny, CallCell::kAny, row.cell.channels, 0}});
  }
  if (result.rows.size() > known.size())
    result.notes.emplace_back(
        "collectives without rows of their own are capped as all-reduce is at the same size");
  for (const auto& [name, value] : launch)
    if (name.starts_with("env.")) result.environment[name.substr(4)] = value;
  if (ceiling > 0) {
    result.environment["NCCL_MIN_CTAS"] = std::to_string(ceiling);
    if (open)
      result.notes.push_back(fmt::format(
          "some sizes leave the channels to NCCL, which now has up to {} of them", ceiling));
  }
  return result;
}

}  // namespace dynamiccl
