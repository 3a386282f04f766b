#include "tuner/export/nccl_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/vocabulary/setting.hpp"

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

std::string knob(const ActionSettings& setting, const std::string& name) {
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

/// Rows of one communicator size and function: a row's cell at its own size's bin, and between two
/// neighbours that agree. On other ground NCCL chooses; where a ceiling of channels is raised,
/// under the nearest row's cap, as NCCL would rise to the ceiling there.
void add_rows(std::vector<CallRow>& rows, unsigned ranks, std::size_t function,
              std::vector<const TableEntry*> entries, bool capped) {
  std::sort(entries.begin(), entries.end(), [](const TableEntry* a, const TableEntry* b) {
    return a->key.task.bin < b->key.task.bin;
  });
  std::vector<std::pair<std::size_t, CallCell>> points;
  for (const TableEntry* entry : entries)
    points.emplace_back(static_cast<std::size_t>(entry->key.task.bin.log2),
                        call_cell(entry->setting));
  const auto add = [&](std::size_t first, std::size_t last, const CallCell& cell) {
    if (first > last || cell.leaves_all()) return;
    const bool follows = !rows.empty() && rows.back().ranks == ranks &&
                         rows.back().function == function && rows.back().last_bin + 1 == first;
    if (follows && rows.back().cell == cell)
      rows.back().last_bin = last;
    else
      rows.push_back({ranks, 0, function, first, last, cell});
  };
  const auto cap_of = [&](const CallCell& cell) {
    return CallCell{CallCell::kAny, CallCell::kAny, capped ? cell.channels : std::uint8_t{0}, 0};
  };
  if (points.front().first > 0) add(0, points.front().first - 1, cap_of(points.front().second));
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [bin, cell] = points[i];
    add(bin, bin, cell);
    const bool is_last = i + 1 == points.size();
    const std::size_t end = is_last ? kCallBins - 1 : points[i + 1].first - 1;
    if (!is_last && points[i + 1].second == cell) {
      add(bin + 1, end, cell);
      continue;
    }
    // Half way to the next one; a tie goes to the smaller size.
    const std::size_t middle = is_last ? end : (bin + points[i + 1].first) / 2;
    add(bin + 1, middle, cap_of(cell));
    if (!is_last) add(middle + 1, end, cap_of(points[i + 1].second));
  }
}

/// Communicator size and function -> what was measured of them.
using RowsByFunction = std::map<std::pair<unsigned, std::size_t>, std::vector<const TableEntry*>>;

/// What has no rows would rise to the ceiling uncapped.
void cap_the_rest(NcclExport& settings, const RowsByFunction& by_function) {
  const std::vector<CallRow> known = settings.rows;
  for (const CallRow& row : known) {
    if (row.function != kAllReduce || row.cell.channels == 0) continue;
    for (std::size_t function = 0; function < kAllReduce; ++function)
      if (!by_function.contains({row.ranks, function}))
        settings.rows.push_back({row.ranks,
                                 0,
                                 function,
                                 row.first_bin,
                                 row.last_bin,
                                 {CallCell::kAny, CallCell::kAny, row.cell.channels, 0}});
  }
  if (settings.rows.size() > known.size())
    settings.notes.emplace_back(
        "collectives without rows of their own are capped as all-reduce is at the same size");
}

}  // namespace

CallCell call_cell(const ActionSettings& setting) {
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

NcclExport nccl_settings(const std::vector<TableEntry>& entries) {
  NcclExport result;
  std::vector<const TableEntry*> usable;
  for (const TableEntry& entry : entries)
    if (entry.key.task.backend == Backend::nccl && function_of(entry.key.task.collective))
      usable.push_back(&entry);
  const Launch launch = winning_launch(usable);
  RowsByFunction by_function;
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
  const bool capped = std::any_of(usable.begin(), usable.end(), [&](const TableEntry* entry) {
    return entry->setting.launch_knobs == launch && call_cell(entry->setting).channels > 0;
  });
  for (const auto& [key, rows] : by_function)
    add_rows(result.rows, key.first, key.second, rows, capped);
  if (capped)
    result.notes.emplace_back(
        "between sizes that were not measured NCCL chooses, with at most the channels of the "
        "nearest "
        "measured size");
  unsigned ceiling = 0;
  bool open = false;
  for (const CallRow& row : result.rows) {
    ceiling = std::max<unsigned>(ceiling, row.cell.channels);
    open = open || row.cell.channels == 0;
  }
  cap_the_rest(result, by_function);
  for (const auto& [name, value] : settings_of(launch, SettingScope::env))
    result.environment[name] = value;
  if (ceiling > 0) {
    result.environment["NCCL_MIN_CTAS"] = std::to_string(ceiling);
    if (open)
      result.notes.push_back(fmt::format(
          "some sizes leave the channels to NCCL, which now has up to {} of them", ceiling));
  }
  return result;
}

}  // namespace dynamiccl
