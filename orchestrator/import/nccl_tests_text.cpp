#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/launch_lines.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "orchestrator/import/nccl_row.hpp"

namespace dynamiccl {
namespace {

using nlohmann::ordered_json;

/// More than any job has; what is multiplied from two of them is still a number.
constexpr std::uint64_t kMostRanks = 1'000'000'000;

/// nccl-tests prints at most 2,047 bytes of the list of one process; from here on the line of one
/// more rank may not have fitted.
constexpr std::size_t kLongProcess = 1900;

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
  std::array<char, 32> rank{};
  std::array<char, 32> group{};
  std::array<char, 32> pid{};
  std::array<char, 256> host{};
  int end = 0;
  std::sscanf(line.c_str(), "# Rank %31s Group %31s Pid %31s on %255s device%n", rank.data(),
              group.data(), pid.data(), host.data(), &end);
  if (end == 0) {
    group = {};
    std::sscanf(line.c_str(), "# Rank %31s Pid %31s on %255s device%n", rank.data(), pid.data(),
                host.data(), &end);
  }
  if (end == 0) return std::nullopt;
  const auto close = line.find(']');
  return RankLine{rank.data(), group.data(), pid.data(), host.data(),
                  close == std::string::npos ? "" : std::string(trim(line.substr(close + 1)))};
}

/// The largest difference for each rank beyond the first that nccl-tests lets pass, as long as it
/// had a column "error"; nullopt = not known.
std::optional<double> most_error(const std::string& datatype) {
  if (datatype == "float16" || datatype == "bfloat16") return 1e-2;
  if (datatype == "float32") return 1e-5;
  if (datatype == "float64") return 1e-12;
  return datatype.find("int") != std::string::npos || datatype == "char" ? std::optional(0.0)
                                                                         : std::nullopt;
}

/// True for a column that counts what is wrong: "#wrong", "#bitdiff".
bool counts_faults(const std::string& column) {
  static constexpr std::array<std::string_view, 5> kFaults{"wrong", "diff", "err", "mismatch",
                                                           "fail"};
  return column.starts_with('#') &&
         std::any_of(kFaults.begin(), kFaults.end(), [&](std::string_view fault) {
           return column.find(fault) != std::string::npos;
         });
}

/// What shows, while a start is read, how many programs wrote it and which ranks it has.
struct Signs {
  std::size_t configs = 0;
  std::size_t headings = 0;                          ///< since the last row
  std::size_t ends = 0;                              ///< lines "Avg bus bandwidth"
  std::size_t separate_from = 0;                     ///< line that shows a second program; 0 = none
  std::map<std::pair<int, int>, std::size_t> ranks;  ///< how often (group, rank) is listed
  /// Bytes of the lines that list the ranks of a (host, process id).
  std::map<std::pair<std::string, std::string>, std::size_t> processes;
  bool cut_rank = false;  ///< a line of a rank lacks its end
  std::size_t last_rank_line = 0;
  std::size_t left_out_line = 0;  ///< of dots between the ranks; 0 = none
  std::optional<int> measured_group;
  std::vector<std::string> keys;  ///< of the rows of one direction, in order
  std::size_t empty_rows = 0;     ///< of 0 bytes
  std::size_t empty_line = 0;     ///< of the first of them
  std::string failed;             ///< verdicts below the rows that say so, as printed
  double failed_count = 0;        ///< what they count
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
    if (!starts_.empty() && std::all_of(starts_.begin(), starts_.end(), [](const auto& start) {
          return start.rows.empty() && !start.warnings.empty();
        }))
      throw Error(ErrorKind::data,
                  path_ + ": " + join(starts_.back().warnings, "; ") + ", and there are no others");
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
    refuse_end_of_row(text);
    if (text.starts_with("rccl-tests:")) {
      if (starts_.empty()) begin();
      starts_.back().source["suite"] = "rccl-tests";
      starts_.back().source["version"] = word_behind(text, "Version");
    } else {
      if (text.starts_with("Out of bounds") && !starts_.empty()) read_verdict("# " + text);
      launch_.read(text, line_);
    }
  }

  /// A line that holds what the row above it lacks: read as half a row, it would lose a time.
  void refuse_end_of_row(const std::string& text) const {
    const auto words = words_of(text);
    if (words_of_short_row_ > 0 &&
        words_of_short_row_ + words.size() == heading_.columns().size() &&
        std::all_of(words.begin(), words.end(), [](const std::string& word) {
          return word == "N/A" || number_of(word).has_value();
        }))
      refuse(
          fmt::format("the end of the row above, which breaks off behind {} of its {} values: "
                      "put both into one line",
                      words_of_short_row_, heading_.columns().size()));
  }

  void read_heading(const std::string& line, const std::string& text) {
    // Only very old versions print nothing before the heading.
    if (starts_.empty() || (signs_.ends > 0 && !starts_.back().rows.empty())) begin();
    if (signs_.headings++ > 0) note_separate();
    heading_ = NcclHeading(text, line.find('#'));
    if (heading_.times().size() > 2)
      refuse(
          fmt::format("the heading has {} columns of times, and a table has one or two: "
                      "out of place and in place; correct the heading",
                      heading_.times().size()));
  }

  void begin() {
    if (!starts_.empty()) finish_start();
    starts_.emplace_back();
    auto& start = starts_.back();
    start.line = line_;
    launch_.begin(start);
    launch_ranks_ = launch_.processes();
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
      // Below a finished table a list of ranks is the next one's.
      if (starts_.empty() || (signs_.ends > 0 && !starts_.back().rows.empty())) begin();
      signs_.cut_rank = signs_.cut_rank || line.ends_with("...");
      read_rank(*rank, line.size() + 1);
    } else if (trim(line.substr(1)).starts_with("Rank ")) {
      signs_.cut_rank = true;
    } else if (!starts_.empty()) {
      read_verdict(line);
    }
  }

  void read_verdict(const std::string& line) {
    auto& start = starts_.back();
    const auto colon = std::min(line.find(':'), line.size() - 1);
    const auto name = std::string(trim(line.substr(1, colon - 1)));
    const auto words = words_of(line.substr(colon + 1));
    if (const auto units = words_of(line.substr(1));
        signs_.headings > 0 && !units.empty() && units[0].starts_with('(')) {
      check_units(units);
    } else if (name.ends_with(" Enabled") || name == "Per-Iteration Report" ||
               name == "Bitwise Repeatability") {
      if (name.starts_with("Blocking")) start.source["blocking"] = true;
      start.settings[lower_case(name.substr(0, name.find(" Enabled")))] = join(words, " ");
    } else if (line.find("Avg bus bandwidth") != std::string::npos) {
      if (words.empty() || !number_of(words[0])) return;
      const double average = *number_of(words[0]);
      if (signs_.ends++ > 0 && start.source["average_bus_bandwidth"] != average) note_separate();
      start.source["average_bus_bandwidth"] = average;
      if (words.size() > 1 && verdict_of(words[1]) == false)
        start.warnings.push_back(fmt::format(
            "its average bus bandwidth FAILED against the least that it was asked for (line {})",
            line_));
    } else if (!start.rows.empty() && !words.empty() &&
               says_failed(words[number_of(words[0]) && words.size() > 1 ? 1 : 0])) {
      signs_.failed += (signs_.failed.empty() ? "" : "; ") + name + " : " + join(words, " ");
      signs_.failed_count += std::max(0.0, number_of(words[0]).value_or(0));
    } else if (!words_of(line.substr(1)).empty() &&
               line.find_first_not_of("#. \t") == std::string::npos) {
      signs_.left_out_line = line_;
    }
  }

  /// "(B) (elements) (us) (GB/s)" below the heading.
  void check_units(const std::vector<std::string>& units) const {
    static const std::set<std::string> known{"(B)",  "(bytes)", "(elements)",
                                             "(us)", "(GB/s)",  "(%)"};
    for (const auto& unit : units)
      if (unit.starts_with('(') && !known.contains(unit))
        refuse(
            fmt::format("sizes are in (B), times in (us) and bandwidths in (GB/s); "
                        "found the unit \"{}\"",
                        unit));
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

  void read_rank(const RankLine& line, std::size_t bytes) {
    auto& start = starts_.back();
    const int rank = count_at(line.rank, "rank");
    const int group = line.group.empty() ? 0 : count_at(line.group, "group of the rank");
    ordered_json device{{"rank", rank}};
    if (!line.group.empty()) device["group"] = group;
    device["host"] = line.host;
    device["device"] = line.device;
    start.source["devices"].push_back(std::move(device));
    // Groups that a split makes measure at the same time: the first rank's, which prints, is what
    // is measured. Its number need not be 0.
    if (!signs_.measured_group) signs_.measured_group = group;
    if (signs_.ranks[{group, rank}]++ > 0) note_separate();
    signs_.processes[{line.host, line.pid}] += bytes;
    signs_.last_rank_line = line_;
    start.ranks_of_one_process = false;
  }

  [[nodiscard]] std::string here() const { return fmt::format("{}:{}", path_, line_); }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::data, here() + ": " + why);
  }

  [[nodiscard]] int count_at(const std::optional<std::string>& word, std::string_view what) const {
    return static_cast<int>(count_of(word.value_or(""), here(), what, kMostRanks));
  }

  [[nodiscard]] std::size_t groups() const {
    std::set<int> found;
    for (const auto& [rank, times] : signs_.ranks) found.insert(rank.first);
    return found.size();
  }

  /// The ranks of the measured group. Lists are shortened by hand, where the highest number counts,
  /// and by the program itself, where each process has as many as it was started with.
  void settle_ranks() {
    auto& start = starts_.back();
    // Both come from the text: their product need not fit an int.
    const std::int64_t each = start.source.value("threads", std::int64_t{1}) *
                              start.source.value("gpus_per_thread", std::int64_t{1});
    if (signs_.ranks.empty()) {
      if (!launch_ranks_) return;
      start.ranks = static_cast<int>(std::min<std::int64_t>(each * *launch_ranks_, kMostRanks));
      start.ranks_of_one_process = false;
      return;
    }
    int listed = 0;
    int highest = 0;
    for (const auto& [rank, times] : signs_.ranks) {
      if (rank.first == signs_.measured_group) ++listed;
      highest = std::max(highest, rank.second);
    }
    const auto in_lines = static_cast<std::int64_t>(signs_.ranks.size());
    const bool cut = signs_.cut_rank ||
                     std::any_of(signs_.processes.begin(), signs_.processes.end(),
                                 [](const auto& process) { return process.second > kLongProcess; });
    const auto by_processes =
        cut ? static_cast<std::int64_t>(signs_.processes.size()) * each : in_lines;
    const bool open_end = signs_.left_out_line > signs_.last_rank_line && !cut;
    if (highest + 1 == in_lines && in_lines == by_processes && !open_end) {
      start.ranks = listed;
      return;
    }
    const auto all = std::max<std::int64_t>(highest + 1, by_processes);
    if (open_end || groups() > 1 || each == 0 || all % each != 0 ||
        all > static_cast<std::int64_t>(kMostRanks)) {
      start.ranks.reset();
      return;
    }
    start.ranks = static_cast<int>(all);
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
    judge_errors(start);
    apply_verdict(start);
    if (signs_.empty_rows > 0)
      start.warnings.push_back(
          fmt::format("rows of 0 bytes move nothing and are left out: {}, from line {} on",
                      signs_.empty_rows, signs_.empty_line));
    if (const auto library = start.source.find("nccl_library"); library != start.source.end())
      start.settings["nccl_library"] = library->get<std::string>();
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

  /// Before "#wrong" there was "error", the largest difference, which the program compared with a
  /// limit that grew with the ranks. What it prints has one digit: where it says that something
  /// failed, a difference at the limit is beyond it.
  void judge_errors(ForeignStart& start) const {
    const double others = std::max(1, start.ranks.value_or(options_.ranks) - 1);
    for (auto& row : start.rows) {
      const auto error = row.reported.find("error");
      const auto most = most_error(row.datatype);
      if (!most || error == row.reported.end() || !error->is_number()) continue;
      const double limit = *most * others;
      const auto difference = error->get<double>();
      if (difference < limit || (difference == limit && (limit == 0 || signs_.failed.empty())))
        continue;
      row.wrong = 1;
      row.wrong_reason = fmt::format("its column error says {:.3g}, more than the {:.3g} of {}",
                                     difference, limit, row.datatype);
    }
  }

  /// The program's own verdict: where the rows do not say which of them it means, it is of all.
  void apply_verdict(ForeignStart& start) const {
    if (signs_.failed.empty()) return;
    double counted = 0;
    for (const auto& row : start.rows) {
      // A column that judges names every row that failed; the verdict counts them by thread.
      if (!row.wrong_reason.empty()) return;
      counted += static_cast<double>(row.wrong.value_or(0));
    }
    if (counted > 0 && counted >= signs_.failed_count) return;
    for (auto& row : start.rows) {
      if (row.wrong.value_or(0) > 0) continue;
      row.wrong = 1;
      row.wrong_reason = "the program's own verdict says \"" + signs_.failed + "\"";
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
      refuse(fmt::format("a row of {} values under a heading of {}: {}", words.size(),
                         heading_.columns().size(), join(words, " ")));
    }
    signs_.headings = 0;
    const auto words = words_of(line).size();
    words_of_short_row_ = words < heading_.columns().size() ? words : 0;
    if (count_of(column(values, "size"), here(), "size in bytes") == 0) {
      if (signs_.empty_rows++ == 0) signs_.empty_line = line_;
      return;
    }
    signs_.keys.push_back(column(values, "size") + " " + column(values, "type") + " " +
                          column(values, "redop") + " " + column(values, "root"));
    const auto times = heading_.times();
    if (std::none_of(times.begin(), times.end(),
                     [&](std::size_t time) { return values[time].has_value(); }))
      refuse(fmt::format("a row without a time, as if it were cut off: {}",
                         join(words_of(line), " ")));
    for (std::size_t direction = 0; direction < times.size(); ++direction)
      add_row(values, times[direction], direction == 1);
    if (heading_.columns()[times.front()] == "cputime") starts_.back().settings["clock"] = "cpu";
  }

  void add_row(const Values& values, std::size_t from, bool in_place) {
    const auto size = count_of(column(values, "size"), here(), "size in bytes");
    const auto count = count_of(column(values, "count"), here(), "count of elements");
    // The operation has no such direction; a replayed trace leaves it blank.
    if (!values[from] || *values[from] == "N/A") return;
    auto row = nccl_tests_row({operation(), size, count, column(values, "type"),
                               column(values, "redop"), column(values, "root"), in_place},
                              groups());
    row.time_us = positive_of(*values[from], here(), "time in microseconds");
    row.resolution_us = resolution_of(*values[from]);
    add_figures(row, values, from);
    starts_.back().rows.push_back(std::move(row));
  }

  /// The values of a row under the heading's names from column `from` up to the next time, and of
  /// columns that the whole row has once, behind both times.
  void add_figures(ForeignRow& row, const Values& values, std::size_t from) const {
    const auto& columns = heading_.columns();
    const auto times = heading_.times();
    for (std::size_t i = from; i < columns.size(); ++i) {
      if (columns[i] == "timestamp") break;
      const auto next = std::find_if(times.begin(), times.end(),
                                     [&](std::size_t time) { return time > from && time <= i; });
      const bool of_row =
          i > times.back() && std::count(columns.begin(), columns.end(), columns[i]) == 1;
      if (!values[i] || (next != times.end() && !of_row)) continue;
      if (const auto number = number_of(*values[i])) {
        row.reported[columns[i]] = *number;
      } else {
        row.reported[columns[i]] = *values[i] == "N/A" ? ordered_json() : ordered_json(*values[i]);
      }
      if (counts_faults(columns[i])) {
        const auto wrong = wrong_of(*values[i], here());
        if (!wrong) continue;
        row.wrong = row.wrong.value_or(0) + *wrong;
        if (*wrong > 0 && columns[i] != "#wrong")
          row.wrong_reason = fmt::format("its column {} counts {}", columns[i], *values[i]);
      } else if (is_verdict_column(columns[i]) || says_failed(*values[i])) {
        note_column_verdict(row, columns[i], *values[i]);
      }
    }
  }

  void note_column_verdict(ForeignRow& row, const std::string& title,
                           const std::string& word) const {
    const auto good = verdict_of(word);
    if (!good)
      refuse(fmt::format("the column {} has to say PASS or FAIL; found \"{}\"", title, word));
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
  std::size_t words_of_short_row_ = 0;  ///< of the last row, where the heading has more columns
  LaunchLines launch_;
  std::optional<int> launch_ranks_;  ///< processes of the launcher of the current start
  std::vector<ForeignStart> starts_;
};

}  // namespace

std::vector<ForeignStart> read_nccl_tests_text(const std::string& text, const std::string& path,
                                               const ImportOptions& options) {
  return TextReader(path, options).read(text);
}

}  // namespace dynamiccl
