#include "orchestrator/launch/integrity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

struct RankView {
  const HelloRecord* hello = nullptr;
  const DoneRecord* done = nullptr;
  const ErrorRecord* error = nullptr;
  std::map<std::string, const CellRecord*> cells;
};

RankView view_of(const RecordFile& file) {
  RankView view;
  for (const auto& record : file.records) {
    if (const auto* hello = std::get_if<HelloRecord>(&record)) view.hello = hello;
    if (const auto* done = std::get_if<DoneRecord>(&record)) view.done = done;
    if (const auto* error = std::get_if<ErrorRecord>(&record)) view.error = error;
    if (const auto* cell = std::get_if<CellRecord>(&record)) view.cells[cell->cell_id] = cell;
  }
  return view;
}

/// One problem per kind with the ranks it concerns, not one per rank.
class Problems {
 public:
  void add(const std::string& what, int rank) { ranks_[what].push_back(std::to_string(rank)); }
  [[nodiscard]] std::vector<std::string> sentences() const {
    std::vector<std::string> result;
    for (const auto& [what, ranks] : ranks_) {
      result.push_back(
          fmt::format("rank{} {}: {}", ranks.size() == 1 ? "" : "s", join(ranks, ", "), what));
    }
    return result;
  }

 private:
  std::map<std::string, std::vector<std::string>> ranks_;
};

void check_rank(const RunConfig& config, int rank, const RankView& view, Problems& problems) {
  if (view.error != nullptr) problems.add(view.error->message, rank);
  if (view.hello == nullptr) {
    if (view.error == nullptr)
      problems.add("left no record: the process did not start, or lies in another world", rank);
    return;
  }
  if (view.hello->world_size != config.ranks)
    problems.add(fmt::format("world of {} rank{} instead of {}", view.hello->world_size,
                             view.hello->world_size == 1 ? "" : "s", config.ranks),
                 rank);
  if (view.hello->rank != rank)
    problems.add(fmt::format("calls itself rank {}", view.hello->rank), rank);
  if (view.hello->launch_id != config.launch_id)
    problems.add(fmt::format("belongs to launch {}", view.hello->launch_id), rank);
  std::size_t missing = 0;
  for (const auto& cell : config.cells) missing += view.cells.contains(cell.id) ? 0 : 1;
  if (missing > 0)
    problems.add(fmt::format("{} missing", counted_of(missing, config.cells.size(), "cell")), rank);
  if (view.done == nullptr && view.error == nullptr)
    problems.add("ended without its last record", rank);
}

bool finite_and_positive(const std::vector<double>& samples) {
  return std::all_of(samples.begin(), samples.end(),
                     [](double value) { return std::isfinite(value) && value >= 0; });
}

/// Whether each rank ends up with data that it can compare. With a server some only send, and
/// trainers compare among each other; a list of alltoallv's parts may leave a rank nothing.
bool every_rank_receives(const RunConfig& config, const WorkCell& cell) {
  return config.architecture == Architecture::ring && cell.collective != Collective::reduce &&
         cell.collective != Collective::training &&
         !(cell.collective == Collective::alltoallv && cell.knobs.contains("parts"));
}

/// "" or why the cell is no verified result. At least one rank has compared something of every
/// operation: the server alone for a push, the workers for training.
/// @param checked elements that each rank has compared
std::string why_not_verified(const RunConfig& config, const WorkCell& cell,
                             const std::map<int, std::uint64_t>& checked) {
  const bool moves_nothing =
      cell.size.count() == 0 && facts_of(cell.collective).size != SizeRule::nothing;
  if (!config.protocol.verify || moves_nothing) return "";
  std::vector<std::string> idle;
  for (const auto& [rank, count] : checked)
    if (count == 0) idle.push_back(std::to_string(rank));
  const bool all_idle = idle.size() == checked.size();
  if (idle.empty() || (!all_idle && !every_rank_receives(config, cell))) return "";
  const std::string who = all_idle ? "no rank compared an element"
                                   : "rank " + join(idle, ", ") + " compared no element";
  return who + ", although protocol.verify is on";
}

/// A cell's outcome over the ranks that reported it.
void check_cell(const RunConfig& config, const WorkCell& cell, const std::vector<RankView>& ranks,
                LaunchCheck& check) {
  std::set<CellStatus> statuses;
  std::set<std::size_t> counts;
  std::map<int, std::uint64_t> checked;
  for (const auto& rank : ranks) {
    const auto found = rank.cells.find(cell.id);
    if (found == rank.cells.end()) continue;
    const CellRecord& record = *found->second;
    statuses.insert(record.wrong > 0 ? CellStatus::failed : record.status);
    counts.insert(record.measured.total_us.size());
    checked[record.rank] += record.checked;
    if (!finite_and_positive(record.measured.total_us))
      check.problems.push_back(fmt::format("{} {}: rank {} recorded a time that is no time",
                                           name_of(cell.collective), format_bytes(cell.size),
                                           record.rank));
  }
  if (statuses.contains(CellStatus::failed)) {
    ++check.failed_cells;
  } else if (statuses.contains(CellStatus::unsupported)) {
    if (statuses.size() > 1)
      check.problems.push_back(fmt::format("{} {}: the ranks disagree whether it is supported",
                                           name_of(cell.collective), format_bytes(cell.size)));
    ++check.unsupported_cells;
  } else if (counts.size() > 1) {
    check.problems.push_back(fmt::format("{} {}: the ranks recorded different numbers of samples",
                                         name_of(cell.collective), format_bytes(cell.size)));
  } else if (counts == std::set<std::size_t>{0}) {
    check.problems.push_back(fmt::format("{} {}: no samples were recorded",
                                         name_of(cell.collective), format_bytes(cell.size)));
  } else if (const auto why = why_not_verified(config, cell, checked); !why.empty()) {
    check.problems.push_back(
        fmt::format("{} {}: {}", name_of(cell.collective), format_bytes(cell.size), why));
  }
}

}  // namespace

LaunchCheck check_records(const RunConfig& config, const std::vector<RecordFile>& files) {
  LaunchCheck check;
  Problems problems;
  std::vector<RankView> ranks;
  for (int rank = 0; rank < config.ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    static const RecordFile empty;
    ranks.push_back(view_of(index < files.size() ? files[index] : empty));
    check_rank(config, rank, ranks.back(), problems);
  }
  check.problems = problems.sentences();
  for (const auto& cell : config.cells) check_cell(config, cell, ranks, check);
  return check;
}

std::string failed_cells_text(const std::vector<RecordFile>& files) {
  constexpr std::string_view kDiverged = "training diverged";
  // Of a cell what explains most on any rank: weights that are no numbers are no right ones either.
  std::map<std::string, int> kinds;
  for (const auto& file : files)
    for (const auto& record : file.records) {
      const auto* cell = std::get_if<CellRecord>(&record);
      if (cell == nullptr || (cell->wrong == 0 && cell->status != CellStatus::failed)) continue;
      const int kind = cell->reason.starts_with(kDiverged) ? 2 : cell->wrong > 0 ? 1 : 0;
      int& known = kinds.try_emplace(cell->cell_id, kind).first->second;
      known = std::max(known, kind);
    }
  std::vector<std::string> parts;
  for (const auto& [kind, what] :
       {std::pair{1, "with a wrong result"}, {2, "whose training diverged"}, {0, "that failed"}}) {
    const auto count = std::count_if(kinds.begin(), kinds.end(), [kind = kind](const auto& cell) {
      return cell.second == kind;
    });
    if (count > 0) parts.push_back(fmt::format("{} {}", counted(count, "cell"), what));
  }
  return join(parts, ", ");
}

std::vector<RecordFile> read_launch_records(const RunConfig& config,
                                            std::vector<std::string>& problems) {
  std::vector<RecordFile> files;
  for (int rank = 0; rank < config.ranks; ++rank) {
    const std::string path = fmt::format("{}/{}", config.output_dir, record_file_name(rank));
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      files.emplace_back();
      continue;
    }
    try {
      files.push_back(read_record_file(path));
    } catch (const Error& damage) {
      problems.emplace_back(damage.what());
      files.emplace_back();
    }
  }
  return files;
}

}  // namespace dynamiccl
