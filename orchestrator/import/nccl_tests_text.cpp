#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "orchestrator/import/nccl_row.hpp"
#include "orchestrator/import/nccl_tests_text.hpp"

namespace dynamiccl {
namespace {

using nlohmann::ordered_json;

/// More than any job has; what is multiplied from two of them is still a number.
constexpr std::uint64_t kMostRanks = 1'000'000'000;

/// The digits behind `key` in a line; nullopt where there are none.
std::optional<std::string> digits_behind(const std::string& line, std::string_view key,
                                         std::size_t from = 0) {
  const auto found = line.find(key, from);
  if (found == std::string::npos) return std::nullopt;
  std::string digits;
  for (auto at = line.find_first_not_of(' ', found + key.size());
       at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0; ++at)
    digits += line[at];
  return digits.empty() ? std::nullopt : std::optional(digits);
}

/// The word behind `key` in a line.
std::string word_behind(const std::string& line, std::string_view key) {
  const auto found = line.find(key);
  if (found == std::string::npos) return "";
  const auto words = words_of(line.substr(found + key.size()));
  return words.empty() ? "" : words.front();
}

/// A line of "Using devices".
struct RankLine {
  std::string rank;
  std::string group;
  std::string pid;
  std::string host;
  std::string device;
};

/// "#  Rank  0 Group  0 Pid  41210 on      node1 device  0 [0000:1b:00] NVIDIA H200"
std::optional<RankLine> rank_line(const std::string& line) {
  const auto words = words_of(line.substr(1));
  std::size_t at = 0;
  const auto take = [&](std::string_view word) {
    if (at >= words.size() || words[at] != word) return false;
    ++at;
    return true;
  };
  const auto value = [&] { return at < words.size() ? words[at++] : std::string(); };
  RankLine found;
  if (!take("Rank")) return std::nullopt;
  found.rank = value();
  if (take("Group")) found.group = value();
  if (!take("Pid")) return std::nullopt;
  found.pid = value();
  if (!take("on")) return std::nullopt;
  found.host = value();
  if (!take("device")) return std::nullopt;
  const auto close = line.find(']');
  if (close != std::string::npos) found.device = trim(line.substr(close + 1));
  return found;
}

/// What shows, while a start is read, how many programs wrote it and which ranks it has.
struct Signs {
  std::size_t configs = 0;
  std::size_t headings = 0;                          ///< since the last row
  std::size_t ends = 0;                              ///< lines "Avg bus bandwidth"
  std::size_t separate_from = 0;                     ///< line that shows a second program; 0 = none
  std::map<std::pair<int, int>, std::size_t> ranks;  ///< how often (group, rank) is listed
  std::set<std::pair<std::string, std::string>> processes;  ///< (host, process id)
  std::size_t last_rank_line = 0;
  std::size_t left_out_line = 0;  ///< of dots between the ranks; 0 = none
  std::optional<int> measured_group;
  std::vector<std::string> keys;  ///< of the rows of one direction, in order
};

/// Reads one file's text line by line.
class TextReader {
 public:
  TextReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}

  std::vector<ForeignStart> read(const std::string& text) {
    for (const auto& line : log_lines(text, path_)) {
      line_ = line.number;
      read_line(line.text);
    }
    if (!starts_.empty()) finish_start();
    return with_rows(std::move(starts_), path_,
                     "nccl-tests: a heading \"# size count type ... time algbw busbw\" and rows of "
                     "numbers below it");
  }

 private:
  void read_line(const std::string& line) {
    const std::string text(trim(line));
    if (NcclHeading::is_heading(text)) return read_heading(line, text);
    if (text.starts_with('#')) return read_comment(text);
    if (heading_.is_row(line)) return read_row(line);
    if (text.empty()) return;
    if (text.starts_with("rccl-tests:")) {
      if (starts_.empty()) begin();
      starts_.back().source["suite"] = "rccl-tests";
      starts_.back().source["version"] = word_behind(text, "Version");
    } else {
      banner_ = text;
      for (auto& [name, value] : settings_in(text)) {
        if (text.starts_with("export ")) exported_[name] = value;
        settings_[name] = value;
      }
    }
  }

  void read_heading(const std::string& line, const std::string& text) {
    // Only very old versions print nothing before the heading.
    if (starts_.empty() || (signs_.ends > 0 && !starts_.back().rows.empty())) begin();
    if (signs_.headings++ > 0) note_separate();
    heading_ = NcclHeading(text, line.find('#'));
  }

  void begin() {
    if (!starts_.empty()) finish_start();
    starts_.emplace_back();
    auto& start = starts_.back();
    start.line = line_;
    start.settings = std::exchange(settings_, exported_);
    start.banner = std::exchange(banner_, "");
    heading_ = {};
    signs_ = {};
  }

  void note_separate() {
    if (signs_.separate_from == 0) signs_.separate_from = line_;
  }

  void read_comment(const std::string& line) {
    if (const auto version = word_behind(line, "nccl-tests version "); !version.empty()) {
      begin();
      starts_.back().source["version"] = version;
      if (const auto library = digits_behind(line, "nccl-library="))
        starts_.back().source["nccl_library"] = *library;
    } else if (const auto program = word_behind(line, "Collective test starting: ");
               !program.empty()) {
      if (starts_.empty() || !starts_.back().rows.empty()) begin();
      starts_.back().source["program"] = program;
    } else if (line.find("nThread ") != std::string::npos &&
               line.find(" nGpus ") != std::string::npos) {
      if (starts_.empty() || !starts_.back().rows.empty() || signs_.configs > 0) begin();
      read_config(line);
    } else if (const auto rank = rank_line(line)) {
      if (starts_.empty()) begin();
      read_rank(*rank);
    } else if (!starts_.empty()) {
      read_verdict(line);
    }
  }

  void read_verdict(const std::string& line) {
    auto& start = starts_.back();
    const auto words = words_of(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
    if (line.find("Blocking Enabled") != std::string::npos) {
      start.source["blocking"] = true;
      start.settings["blocking"] = "1";
    } else if (line.find("Avg bus bandwidth") != std::string::npos) {
      if (words.empty() || !number_of(words[0])) return;
      const double average = *number_of(words[0]);
      if (signs_.ends++ > 0 && start.source["average_bus_bandwidth"] != average) note_separate();
      start.source["average_bus_bandwidth"] = average;
      if (words.size() > 1 && verdict_of(words[1]) == false)
        start.warnings.push_back(fmt::format(
            "its average bus bandwidth FAILED against the least that it was asked for (line {})",
            line_));
    } else if (line.find("Out of bounds values") != std::string::npos) {
      for (const auto& word : words)
        if (verdict_of(word) == false) failed_verdict_ = join(words, " ");
      if (!words.empty()) failed_count_ = number_of(words[0]).value_or(0);
    } else if (!words_of(line.substr(1)).empty() &&
               line.find_first_not_of("#. \t") == std::string::npos) {
      signs_.left_out_line = line_;
    }
  }

  void read_config(const std::string& line) {
    auto& start = starts_.back();
    ++signs_.configs;
    const int threads = count_at(digits_behind(line, "nThread "), "number of threads (nThread)");
    const int gpus = count_at(digits_behind(line, " nGpus "), "number of GPUs per thread (nGpus)");
    start.source["threads"] = threads;
    start.source["gpus_per_thread"] = gpus;
    const auto warmup = line.find("warmup iters: ");
    if (warmup != std::string::npos) {
      start.warmup =
          count_at(digits_behind(line, "warmup iters: "), "number of warm-up calls (warmup iters)");
      start.iterations =
          count_at(digits_behind(line, " iters: ", warmup + 14), "number of calls (iters)");
    }
    const auto together = digits_behind(line, "agg iters: ");
    const int at_once = together ? count_at(together, "number of calls at once (agg iters)") : 1;
    start.calls = std::max<std::int64_t>(1, std::int64_t{start.iterations.value_or(1)} * at_once);
    if (at_once > 1) start.settings["agg"] = std::to_string(at_once);
    if (const auto checks = digits_behind(line, "validation: "))
      start.verify = count_at(checks, "number of validations") != 0;
    if (const auto largest = digits_behind(line, "maxBytes "))
      start.source["largest_size_bytes"] = count_of(*largest, here(), "largest size (maxBytes)");
    for (const auto& [key, name] : {std::pair{"graph: ", "graph"}, {"unalign: ", "unalign"}}) {
      if (const auto value = digits_behind(line, key); value && *value != "0")
        start.settings[name] = *value;
    }
    if (threads > 1) start.settings["threads"] = std::to_string(threads);
    // Without MPI one process has them all; lines of ranks, where there are any, know better.
    start.ranks =
        static_cast<int>(std::min<std::int64_t>(std::int64_t{threads} * gpus, kMostRanks));
    start.ranks_of_one_process = true;
  }

  void read_rank(const RankLine& line) {
    auto& start = starts_.back();
    const int rank = count_at(line.rank, "rank");
    const int group = line.group.empty() ? 0 : count_at(line.group, "group of the rank");
    ordered_json device{{"rank", rank}};
    if (!line.group.empty()) device["group"] = group;
    device["host"] = line.host;
    device["device"] = line.device;
    start.source["devices"].push_back(std::move(device));
    // Groups that a split makes measure beside each other: the first rank's, which prints, is what
    // is measured. Its number need not be 0.
    if (!signs_.measured_group) signs_.measured_group = group;
    if (signs_.ranks[{group, rank}]++ > 0) note_separate();
    signs_.processes.insert({line.host, line.pid});
    signs_.last_rank_line = line_;
    start.ranks_of_one_process = false;
  }

  [[nodiscard]] std::string here() const { return fmt::format("{}:{}", path_, line_); }

  [[nodiscard]] int count_at(const std::optional<std::string>& word, std::string_view what) const {
    return static_cast<int>(count_of(word.value_or(""), here(), what, kMostRanks));
  }

  [[nodiscard]] std::size_t groups() const {
    std::set<int> found;
    for (const auto& [rank, times] : signs_.ranks) found.insert(rank.first);
    return found.size();
  }

  /// The ranks of the measured group. Lists are shortened by hand: the highest number counts.
  void settle_ranks() {
    auto& start = starts_.back();
    if (signs_.ranks.empty()) return;
    int listed = 0;
    int highest = 0;
    for (const auto& [rank, times] : signs_.ranks) {
      if (rank.first == signs_.measured_group) ++listed;
      highest = std::max(highest, rank.second);
    }
    const bool all_listed = static_cast<std::size_t>(highest) + 1 == signs_.ranks.size();
    const bool open_end = signs_.left_out_line > signs_.last_rank_line;
    if (all_listed && !open_end) {
      start.ranks = listed;
      return;
    }
    // Both come from the text: their product need not fit an int.
    const std::int64_t each = start.source.value("threads", std::int64_t{1}) *
                              start.source.value("gpus_per_thread", std::int64_t{1});
    if (open_end || groups() > 1 || (each > 0 && (highest + 1) % each != 0)) {
      start.ranks.reset();
      return;
    }
    start.ranks = highest + 1;
    start.source["ranks_listed"] = listed;
  }

  /// Each size comes once per cycle (-N repeats the whole): anything else are rows of two programs.
  void check_order() {
    std::vector<std::string> cycle;
    std::set<std::string> known;
    std::size_t next = 0;
    for (const auto& key : signs_.keys) {
      const bool opens = next == 0 && known.insert(key).second;
      if (opens) {
        cycle.push_back(key);
        continue;
      }
      if (key != cycle[next % cycle.size()]) return note_separate();
      ++next;
    }
  }

  void finish_start() {
    auto& start = starts_.back();
    check_order();
    if (signs_.separate_from > 0 && !start.rows.empty()) refuse_separate();
    settle_ranks();
    note_end(start);
    apply_verdict(start);
    if (const auto library = start.source.find("nccl_library"); library != start.source.end())
      start.settings["nccl_library"] = library->get<std::string>();
    failed_verdict_.clear();
    failed_count_ = 0;
  }

  [[noreturn]] void refuse_separate() const {
    std::size_t programs = std::max<std::size_t>(2, signs_.ends);
    for (const auto& [rank, times] : signs_.ranks) programs = std::max(programs, times);
    throw Error(
        ErrorKind::data,
        fmt::format("{}:{}: the job ran as {} separate programs that do not know each other (each "
                    "lists its own rank 0 and prints its own rows): no time in this table is of "
                    "one job of all GPUs. Start the ranks with a launcher that the program was "
                    "built for (make MPI=1), or import each program's output by itself",
                    path_, signs_.separate_from, programs));
  }

  /// All versions end with the mean of the bandwidths, whatever went wrong before.
  static void note_end(ForeignStart& start) {
    if (start.rows.empty() || start.source.contains("average_bus_bandwidth")) return;
    std::string asked;
    if (const auto largest = start.source.find("largest_size_bytes"); largest != start.source.end())
      asked = fmt::format(", of {} asked for,", largest->dump());
    start.cut_off = fmt::format(
        "after its row of {} bytes{} there is no \"# Avg bus bandwidth\" line, with which "
        "nccl-tests ends",
        start.rows.back().size_bytes, asked);
  }

  /// The program's own verdict: where the rows do not say which of them it means, it is of all.
  void apply_verdict(ForeignStart& start) const {
    if (failed_verdict_.empty()) return;
    double counted = 0;
    for (const auto& row : start.rows)
      if (row.wrong_reason.empty()) counted += static_cast<double>(row.wrong.value_or(0));
    if (counted > 0 && counted >= failed_count_) return;
    for (auto& row : start.rows) {
      if (row.wrong.value_or(0) > 0) continue;
      row.wrong = 1;
      row.wrong_reason =
          "the program's own verdict says \"Out of bounds values : " + failed_verdict_ + "\"";
    }
  }

  std::string operation() const {
    const auto& source = starts_.back().source;
    return settled_collective(
        source.contains("program") ? source["program"].get<std::string>() : "", here(), options_);
  }

  using Values = std::vector<std::optional<std::string>>;

  [[nodiscard]] std::string column(const Values& values, const std::string& name) const {
    const auto place = heading_.place(name);
    return place ? values[*place].value_or("") : "";
  }

  void read_row(const std::string& line) {
    const auto values = heading_.values(line);
    if (values.empty()) {
      const auto words = words_of(line);
      throw Error(ErrorKind::data,
                  fmt::format("{}: a row of {} values under a heading of {}: {}", here(),
                              words.size(), heading_.columns().size(), join(words, " ")));
    }
    signs_.headings = 0;
    signs_.keys.push_back(column(values, "size") + " " + column(values, "type") + " " +
                          column(values, "redop") + " " + column(values, "root"));
    const auto times = heading_.times();
    for (std::size_t direction = 0; direction < times.size(); ++direction)
      add_row(values, times[direction], direction == 1);
    if (heading_.columns()[times.front()] == "cputime") starts_.back().settings["clock"] = "cpu";
  }

  void add_row(const Values& values, std::size_t from, bool in_place) {
    const auto size = count_of(column(values, "size"), here(), "size in bytes");
    const auto count = count_of(column(values, "count"), here(), "count of elements");
    // The operation has no such direction; a replayed trace leaves it blank.
    if (!values[from] || *values[from] == "N/A") return;
    ForeignRow row;
    row.collective = operation();
    row.size_bytes = size;
    row.datatype = datatype_of(column(values, "type"));
    row.in_place = in_place;
    row.knobs = nccl_tests_knobs(column(values, "redop"), column(values, "root"), groups());
    row.time_us = positive_of(*values[from], here(), "time in microseconds");
    row.resolution_us = resolution_of(*values[from]);
    row.reported = {{"size", size}, {"count", count}};
    for (const char* name : {"type", "redop", "root"}) {
      if (const auto text = column(values, name); !text.empty()) row.reported[name] = text;
    }
    row.reported["in_place"] = in_place;
    add_figures(row, values, from);
    starts_.back().rows.push_back(std::move(row));
  }

  /// The values of a row under the heading's names from column `from` up to the next time.
  void add_figures(ForeignRow& row, const Values& values, std::size_t from) const {
    const auto& columns = heading_.columns();
    const auto times = heading_.times();
    for (std::size_t i = from; i < columns.size(); ++i) {
      if (i > from && std::find(times.begin(), times.end(), i) != times.end()) break;
      if (columns[i] == "timestamp") break;
      if (!values[i]) continue;
      if (const auto number = number_of(*values[i])) {
        row.reported[columns[i]] = *number;
      } else {
        row.reported[columns[i]] = *values[i] == "N/A" ? ordered_json() : ordered_json(*values[i]);
      }
      // Before "#wrong" there was "error": the largest difference, not a count.
      if (columns[i] == "#wrong") row.wrong = wrong_of(*values[i], here());
      if (is_verdict_column(columns[i])) note_column_verdict(row, columns[i], *values[i]);
    }
  }

  void note_column_verdict(ForeignRow& row, const std::string& title,
                           const std::string& word) const {
    const auto good = verdict_of(word);
    if (!good)
      throw Error(ErrorKind::data,
                  fmt::format("{}: the column {} has to say PASS or FAIL; found \"{}\"", here(),
                              title, word));
    if (!row.wrong) row.wrong = 0;
    if (*good) return;
    row.wrong = std::max<std::uint64_t>(1, *row.wrong);
    row.wrong_reason = fmt::format("the program's own column {} says {}", title, word);
  }

  std::string path_;
  const ImportOptions& options_;
  std::size_t line_ = 0;
  NcclHeading heading_;
  Signs signs_;
  std::string failed_verdict_;  ///< of the current start, as printed
  double failed_count_ = 0;
  std::string banner_;
  std::map<std::string, std::string> settings_;  ///< of lines since the start before
  std::map<std::string, std::string> exported_;  ///< hold for all that follow
  std::vector<ForeignStart> starts_;
};

}  // namespace

std::map<std::string, std::string> nccl_tests_knobs(const std::string& redop,
                                                    const std::string& root, std::size_t groups) {
  std::map<std::string, std::string> knobs;
  if (!redop.empty() && redop != "sum" && redop != "none") knobs["redop"] = redop;
  if (!root.empty() && root != "-1" && root != "0") knobs["root"] = root;
  if (groups > 1) knobs["groups"] = std::to_string(groups);
  return knobs;
}

std::vector<ForeignStart> read_nccl_tests_text(const std::string& text, const std::string& path,
                                               const ImportOptions& options) {
  return TextReader(path, options).read(text);
}

}  // namespace dynamiccl
