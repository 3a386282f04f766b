#include "tuner/export/mpi_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/setting.hpp"
#include "tuner/action/algorithm_rows.hpp"

namespace dynamiccl {
namespace {

/// coll_tuned's number of a collective in a rules file, and its algorithms from number 1 on.
struct TunedCollective {
  Collective collective;
  int id;
  std::array<std::string_view, 9> algorithms;
};
constexpr std::array kTuned{
    TunedCollective{Collective::allgather,
                    0,
                    {"linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc"}},
    TunedCollective{Collective::allreduce,
                    2,
                    {"basic_linear", "nonoverlapping", "recursive_doubling", "ring",
                     "segmented_ring", "rabenseifner"}},
    TunedCollective{Collective::alltoall,
                    3,
                    {"linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"}},
    TunedCollective{Collective::broadcast,
                    7,
                    {"basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree",
                     "binomial", "knomial", "scatter_allgather", "scatter_allgather_ring"}},
    TunedCollective{Collective::gather, 9, {"basic_linear", "binomial", "linear_sync"}},
    TunedCollective{
        Collective::reduce,
        11,
        {"linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"}},
    // The worker's reduce_scatter is MPI_Reduce_scatter_block.
    TunedCollective{Collective::reduce_scatter,
                    13,
                    {"basic_linear", "recursive_doubling", "recursive_halving", "butterfly"}}};

const TunedCollective* tuned(Collective collective) {
  const auto* found = std::find_if(kTuned.begin(), kTuned.end(), [&](const TunedCollective& row) {
    return row.collective == collective;
  });
  return found == kTuned.end() ? nullptr : found;
}

/// Rows of tables made by hand have no size: the smallest of their bin.
Bytes measured_at(const TableEntry& entry) {
  return entry.size.count() > 0 ? entry.size : Bytes{std::uint64_t{1} << entry.key.task.bin.log2};
}

long number_of(const ActionSettings& setting, std::string_view ending) {
  for (const auto& [name, value] : setting.call_knobs)
    if (name.ends_with(ending)) return std::atol(value.c_str());
  return 0;
}

struct RuleLine {
  std::uint64_t first_bytes;
  int algorithm;
  long fanout;
  long segment;
  [[nodiscard]] bool alike(const RuleLine& other) const {
    return algorithm == other.algorithm && fanout == other.fanout && segment == other.segment;
  }
};

RuleLine line_of(const TunedCollective& row, const TableEntry& entry,
                 std::vector<std::string>& notes) {
  RuleLine line{measured_at(entry).count(), 0, 0, 0};
  if (entry.setting.algorithm == "library") return line;
  line.algorithm = openmpi_algorithm(row.collective, entry.setting.algorithm);
  if (line.algorithm < 0) {
    notes.push_back(fmt::format("{}: no job can load \"{}\"; Open MPI's own choice stays",
                                entry.key.task.text(), entry.setting.algorithm));
    line.algorithm = 0;
    return line;
  }
  line.segment = number_of(entry.setting, "segmentsize");
  line.fanout =
      std::max(number_of(entry.setting, "fanout"), number_of(entry.setting, "knomial_radix"));
  return line;
}

/// Message sizes from 0 on: a setting holds at the sizes that were measured, and between two
/// neighbours that agree; everywhere else Open MPI chooses.
std::vector<RuleLine> lines_of(const TunedCollective& row, std::vector<const TableEntry*> entries,
                               std::vector<std::string>& notes) {
  std::sort(entries.begin(), entries.end(), [](const TableEntry* a, const TableEntry* b) {
    return measured_at(*a) < measured_at(*b);
  });
  std::vector<RuleLine> points;
  for (const TableEntry* entry : entries) points.push_back(line_of(row, *entry, notes));
  std::vector<RuleLine> lines{{0, 0, 0, 0}};
  const auto add = [&](const RuleLine& line) {
    if (lines.back().first_bytes == line.first_bytes)
      lines.back() = line;
    else if (!lines.back().alike(line))
      lines.push_back(line);
  };
  for (std::size_t i = 0; i < points.size(); ++i) {
    add(points[i]);
    if (i + 1 == points.size() || !points[i].alike(points[i + 1]))
      add({points[i].first_bytes + 1, 0, 0, 0});
  }
  return lines;
}

}  // namespace

std::string unknown_openmpi_number(std::string_view parameter, const std::string& value) {
  if (value.empty() || value.find_first_not_of("0123456789") != std::string::npos) return "";
  for (const TunedCollective& row : kTuned) {
    std::string_view name = name_of(row.collective);
    if (row.collective == Collective::broadcast) name = "bcast";
    if (row.collective == Collective::reduce_scatter) name = "reduce_scatter_block";
    if (parameter != fmt::format("coll_tuned_{}_algorithm", name)) continue;
    const auto known =
        static_cast<std::size_t>(std::count_if(row.algorithms.begin(), row.algorithms.end(),
                                               [](std::string_view one) { return !one.empty(); }));
    if (value.size() < 6 && std::stoul(value) <= known) return "";
    return fmt::format(
        "mca.{} = {}: Open MPI 4.1 has algorithms 1 to {} of {}, and 0 for its own "
        "choice",
        parameter, value, known, name_of(row.collective));
  }
  return "";
}

int openmpi_algorithm(Collective collective, std::string_view name) {
  const TunedCollective* row = tuned(collective);
  if (row == nullptr || name.empty()) return -1;
  const auto* found = std::find(row->algorithms.begin(), row->algorithms.end(), name);
  return found == row->algorithms.end() ? -1
                                        : static_cast<int>(found - row->algorithms.begin()) + 1;
}

std::string openmpi_rules(const std::vector<TableEntry>& entries, std::vector<std::string>& notes) {
  std::map<int, std::map<int, std::vector<const TableEntry*>>> by_id;
  bool sets_anything = false;
  for (const TableEntry& entry : entries) {
    if (backend_facts(entry.key.task.backend).library != Backend::openmpi) continue;
    const TunedCollective* row = tuned(entry.key.task.collective);
    if (row == nullptr || entry.key.task.architecture != Architecture::ring) {
      notes.push_back(entry.key.task.text() + ": no rules file can set it");
      continue;
    }
    by_id[row->id][entry.key.task.group_size].push_back(&entry);
    sets_anything |= openmpi_algorithm(row->collective, entry.setting.algorithm) > 0;
  }
  if (!sets_anything) {
    for (const auto& [id, by_ranks] : by_id)
      for (const auto& [ranks, rows] : by_ranks)
        for (const TableEntry* row : rows)
          line_of(*tuned(row->key.task.collective), *row, notes);  // says what cannot be loaded
    return "";
  }
  std::string text = fmt::format("{} # collectives\n", by_id.size());
  for (const auto& [id, by_ranks] : by_id) {
    const TunedCollective& row = *std::find_if(
        kTuned.begin(), kTuned.end(),
        [&, wanted = id](const TunedCollective& known) { return known.id == wanted; });
    // A row holds from its number of ranks on, so the ranks after it go back to the library.
    std::map<int, std::vector<RuleLine>> sizes{{1, {{0, 0, 0, 0}}}};
    for (const auto& [ranks, rows] : by_ranks) sizes[ranks + 1] = {{0, 0, 0, 0}};
    for (const auto& [ranks, rows] : by_ranks) sizes[ranks] = lines_of(row, rows, notes);
    text += fmt::format("{} # {}\n{} # communicator sizes\n", id, name_of(row.collective),
                        sizes.size());
    for (const auto& [ranks, lines] : sizes) {
      text += fmt::format("{} # ranks\n{} # message sizes\n", ranks, lines.size());
      for (const RuleLine& line : lines)
        text += fmt::format("{} {} {} {} # from bytes, algorithm, fan-out, segment\n",
                            line.first_bytes, line.algorithm, line.fanout, line.segment);
    }
  }
  return text;
}

std::map<std::string, std::string> openmpi_parameters(const std::vector<TableEntry>& entries,
                                                      std::vector<std::string>& notes) {
  std::map<std::string, std::string> result;
  for (const TableEntry& entry : entries) {
    if (entry.key.task.backend != Backend::openmpi) continue;
    for (const auto& [name, value] : settings_of(entry.setting.launch_knobs, SettingScope::mca)) {
      const auto [at, added] = result.emplace(name, value);
      if (!added && at->second != value)
        notes.push_back(fmt::format("{} wants {} = {}; a job has one value, {} stays",
                                    entry.key.task.text(), at->first, value, at->second));
    }
  }
  return result;
}

std::map<std::string, std::string> launch_environment(const std::vector<TableEntry>& entries,
                                                      Backend backend,
                                                      std::vector<std::string>& notes) {
  std::map<std::string, std::string> result;
  std::map<std::string, std::string> allocator;
  std::size_t rows = 0;
  std::size_t asking = 0;
  for (const TableEntry& entry : entries) {
    if (entry.key.task.backend != backend) continue;
    ++rows;
    const auto& knobs = entry.setting.launch_knobs;
    const auto of_allocator = settings_of(knobs, SettingScope::malloc);
    allocator.insert(of_allocator.begin(), of_allocator.end());
    for (const auto& [name, value] : settings_of(knobs, SettingScope::env)) {
      const auto [at, added] = result.emplace(name, value);
      if (!added && at->second != value)
        notes.push_back(fmt::format("{} wants {} = {}; a job has one value, {} stays",
                                    entry.key.task.text(), at->first, value, at->second));
    }
    asking += of_allocator.empty() ? 0 : 1;
  }
  if (allocator.empty()) return result;
  std::string& tunables = result[std::string(kTunablesVariable)];
  tunables = with_malloc_settings(tunables, allocator);
  notes.push_back(fmt::format("{} replaces one that a job has already: join the two with \":\"",
                              kTunablesVariable));
  if (asking < rows)
    notes.push_back(fmt::format(
        "the allocator's settings hold for all messages of a job; {} of {} rows were chosen "
        "without them",
        rows - asking, rows));
  return result;
}

std::string mpich_variable(Collective collective) {
  std::string name(collective == Collective::broadcast ? "bcast" : name_of(collective));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (collective == Collective::reduce_scatter) name = "REDUCE_SCATTER_BLOCK";
  return "MPIR_CVAR_" + name + "_INTRA_ALGORITHM";
}

bool loses(const TableEntry& check) {
  const TableEvidence& evidence = check.evidence;
  const bool not_run = evidence.default_us > 0 && !(evidence.ratio > 0);
  return not_run || evidence.verdict == name_of(Verdict::slower);
}

std::map<Collective, std::string> mpich_algorithms(const std::vector<TableEntry>& entries) {
  std::map<Collective, std::map<std::string, double>> gains;
  for (const TableEntry& entry : entries) {
    if (entry.key.task.backend != Backend::mpich) continue;
    const TableEvidence& e = entry.evidence;
    const std::string& algorithm = entry.setting.algorithm;
    if (algorithm == "library" || is_own_algorithm(algorithm)) continue;
    gains[entry.key.task.collective][algorithm] +=
        e.default_us > 0 && e.tuned_us > 0 ? std::log(e.default_us / e.tuned_us) : 0.01;
  }
  std::map<Collective, std::string> best;
  for (const auto& [collective, by_algorithm] : gains)
    best[collective] =
        std::max_element(by_algorithm.begin(), by_algorithm.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; })
            ->first;
  return best;
}

std::map<std::string, std::string> mpich_variables(const std::vector<TableEntry>& entries,
                                                   const std::vector<TableEntry>& checks,
                                                   std::vector<std::string>& notes) {
  std::map<std::string, std::string> result;
  for (const auto& [collective, algorithm] : mpich_algorithms(entries)) {
    bool checked = false;
    std::size_t held = 0;
    std::size_t lost = 0;
    std::size_t faster = 0;
    for (const TableEntry& check : checks) {
      if (check.key.task.backend != Backend::mpich || check.key.task.collective != collective)
        continue;
      checked = true;
      if (check.setting.algorithm != algorithm) continue;
      ++held;
      lost += loses(check) ? 1 : 0;
      faster += check.evidence.ratio_high > 0 && check.evidence.ratio_high < 1 ? 1 : 0;
    }
    if (held > 0 && lost == 0 && faster > 0) {
      result[mpich_variable(collective)] = algorithm;
      continue;
    }
    const std::string why =
        held == 0 && checked ? "and the check over all sizes did not keep it"
        : held == 0
            ? "and what it does at other sizes was not measured (`dynamiccl tune check FILE "
              "TABLE` does)"
        : lost > 0
            ? fmt::format("and at {} of {} sizes it was not shown to be harmless", lost, held)
            : fmt::format("and at none of {} sizes it was surely faster", held);
    notes.push_back(fmt::format("{} by {} is left out: MPICH's variable holds for all sizes, {}",
                                name_of(collective), algorithm, why));
  }
  return result;
}

}  // namespace dynamiccl
