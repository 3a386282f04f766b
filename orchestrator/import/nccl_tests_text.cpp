#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/nccl_tests.hpp"

namespace dynamiccl {
namespace {

using nlohmann::ordered_json;

/// Where the columns of one direction of buffers begin, by the heading's names.
constexpr std::array<std::string_view, 2> kTimes{"time", "cputime"};

bool is_time(const std::string& word) {
  return std::find(kTimes.begin(), kTimes.end(), word) != kTimes.end();
}

/// More than any job has; what is multiplied from two of them is still a number.
constexpr std::uint64_t kMostRanks = 1'000'000'000;

/// A heading line, words after '#'; empty when the line is none.
std::vector<std::string> heading_of(const std::string& line) {
  if (!line.starts_with('#')) return {};
  auto words = words_of(line.substr(1));
  const bool heading = words.size() > 5 && words[0] == "size" && words[1] == "count" &&
                       std::any_of(words.begin(), words.end(), is_time);
  return heading ? words : std::vector<std::string>{};
}

/// Reads one file's text line by line.
class TextReader {
 public:
  TextReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}

  std::vector<ForeignStart> read(const std::string& text) {
    for (const auto& line : clean_lines(text)) {
      ++line_;
      read_line(line);
    }
    for (auto& start : starts_) note_end(start);
    return with_rows(std::move(starts_), path_,
                     "nccl-tests: a heading \"# size count type ... time algbw busbw\" and rows of "
                     "numbers below it");
  }

 private:
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

  void read_line(const std::string& line) {
    if (auto heading = heading_of(line); !heading.empty()) {
      // Only very old versions print nothing before the heading.
      if (starts_.empty()) begin();
      columns_ = std::move(heading);
      return;
    }
    if (line.starts_with('#')) return read_comment(line);
    const auto words = words_of(line);
    if (is_row(words)) read_row(words);
  }

  /// Other programs' lines stand between the rows. A line of a row's form is one, whatever its
  /// numbers are.
  [[nodiscard]] bool is_row(const std::vector<std::string>& words) const {
    if (columns_.empty() || words.size() < 5) return false;
    if (number_of(words[0]) && number_of(words[1])) return true;
    const auto time = std::find_if(columns_.begin(), columns_.end(), is_time) - columns_.begin();
    const auto place = static_cast<std::size_t>(time);
    const auto first = static_cast<unsigned char>(words[0].front());
    return (std::isdigit(first) != 0 || first == '-' || first == '+') &&
           words.size() == row_words() && number_of(words[place]);
  }

  /// A time stamp is one column of two words.
  [[nodiscard]] std::size_t row_words() const {
    return columns_.size() + (columns_.back() == "timestamp" ? 1 : 0);
  }

  [[nodiscard]] std::string here() const { return fmt::format("{}:{}", path_, line_); }

  [[nodiscard]] int count_at(const std::string& word, std::string_view what) const {
    return static_cast<int>(count_of(word, here(), what, kMostRanks));
  }

  void begin() {
    starts_.emplace_back();
    columns_.clear();
    groups_.clear();
  }

  void read_comment(const std::string& line) {
    static const std::regex version(R"(nccl-tests version (\S+))");
    static const std::regex library(R"(nccl-library=(\d+))");
    static const std::regex starting(R"(Collective test starting: (\S+))");
    static const std::regex config(
        R"(nThread (\d+) nGpus (\d+) minBytes \d+ maxBytes \d+ step: .* warmup iters: (\d+) iters: (\d+))");
    static const std::regex rank(
        R"(Rank +(\d+) +(Group +(\d+) +)?Pid +\d+ on +(\S+) device +\d+ \[[^\]]*\] *(.*))");
    std::smatch match;
    if (std::regex_search(line, match, version)) {
      begin();
      starts_.back().source["version"] = match[1].str();
      if (std::smatch code; std::regex_search(line, code, library))
        starts_.back().source["nccl_library"] = code[1].str();
    } else if (std::regex_search(line, match, starting)) {
      if (starts_.empty() || !starts_.back().rows.empty()) begin();
      starts_.back().source["program"] = match[1].str();
    } else if (std::regex_search(line, match, config)) {
      if (starts_.empty() || !starts_.back().rows.empty()) begin();
      read_config(line, match);
    } else if (std::regex_search(line, match, rank)) {
      if (starts_.empty()) begin();
      read_rank(match);
    } else if (line.find("Blocking Enabled") != std::string::npos && !starts_.empty()) {
      starts_.back().source["blocking"] = true;
    } else if (line.find("Avg bus bandwidth") != std::string::npos && !starts_.empty()) {
      const auto words = words_of(line.substr(line.find(':') + 1));
      if (!words.empty() && number_of(words[0]))
        starts_.back().source["average_bus_bandwidth"] = *number_of(words[0]);
    }
  }

  void read_config(const std::string& line, const std::smatch& match) {
    static const std::regex aggregated(R"(agg iters: (\d+))");
    static const std::regex validation(R"(validation: (\d+))");
    static const std::regex largest(R"(maxBytes (\d+))");
    auto& start = starts_.back();
    const int threads = count_at(match[1], "number of threads (nThread)");
    const int gpus = count_at(match[2], "number of GPUs per thread (nGpus)");
    start.source["threads"] = threads;
    start.source["gpus_per_thread"] = gpus;
    start.warmup = count_at(match[3], "number of warm-up calls (warmup iters)");
    start.iterations = count_at(match[4], "number of calls (iters)");
    std::smatch more;
    const int together = std::regex_search(line, more, aggregated)
                             ? count_at(more[1], "number of calls at once (agg iters)")
                             : 1;
    start.calls = std::max<std::int64_t>(1, std::int64_t{*start.iterations} * together);
    if (std::regex_search(line, more, validation))
      start.verify = count_at(more[1], "number of validations") != 0;
    if (std::regex_search(line, more, largest))
      start.source["largest_size_bytes"] = count_of(more[1], here(), "largest size (maxBytes)");
    // Without MPI one process has them all; lines of ranks, where there are any, know better.
    start.ranks =
        static_cast<int>(std::min<std::int64_t>(std::int64_t{threads} * gpus, kMostRanks));
    start.ranks_of_one_process = true;
    groups_.clear();
  }

  void read_rank(const std::smatch& match) {
    auto& start = starts_.back();
    const int group = match[3].matched ? count_at(match[3], "group of the rank") : 0;
    ordered_json device{{"rank", count_at(match[1], "rank")}};
    if (match[3].matched) device["group"] = group;
    device["host"] = match[4].str();
    device["device"] = match[5].str();
    start.source["devices"].push_back(std::move(device));
    // Groups that a split makes measure beside each other: the first rank's, which prints, is what
    // is measured. Its number need not be 0.
    if (groups_.empty()) {
      measured_group_ = group;
      start.ranks = 0;
      start.ranks_of_one_process = false;
    }
    groups_.insert(group);
    if (group == measured_group_) start.ranks = start.ranks.value_or(0) + 1;
  }

  std::string operation() const {
    const auto& source = starts_.back().source;
    return settled_collective(
        source.contains("program") ? source["program"].get<std::string>() : "", here(), options_);
  }

  /// The values of a row under the heading's names from column `from` up to the next time.
  ordered_json figures(const std::vector<std::string>& words, std::size_t from,
                       std::size_t skipped) const {
    ordered_json reported;
    for (std::size_t i = from; i < columns_.size(); ++i) {
      if (i > from && is_time(columns_[i])) break;
      if (columns_[i] == "timestamp") break;
      const std::string& word = words[i - skipped];
      if (const auto number = number_of(word)) {
        reported[columns_[i]] = *number;
      } else {
        reported[columns_[i]] = word == "N/A" ? ordered_json() : ordered_json(word);
      }
    }
    return reported;
  }

  std::string column(const std::vector<std::string>& words, std::string_view name) const {
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    return found == columns_.end() ? "" : words[static_cast<std::size_t>(found - columns_.begin())];
  }

  void read_row(const std::vector<std::string>& words) {
    std::vector<std::size_t> times;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (is_time(columns_[i])) times.push_back(i);
    }
    const std::size_t expected = row_words();
    // A replayed trace has no numbers out of place: the first half of the row is blank.
    const std::size_t half = times.size() == 2 ? times[1] - times[0] : 0;
    const std::size_t skipped = half > 0 && words.size() + half == expected ? half : 0;
    if (words.size() + skipped != expected) {
      throw Error(ErrorKind::data,
                  fmt::format("{}: a row of {} values under a heading of {}: {}", here(),
                              words.size(), columns_.size(), join(words, " ")));
    }
    for (std::size_t direction = skipped > 0 ? 1 : 0; direction < times.size(); ++direction)
      add_row(words, times[direction], skipped, direction == 1);
  }

  void add_row(const std::vector<std::string>& words, std::size_t from, std::size_t skipped,
               bool in_place) {
    const auto size = count_of(words[0], here(), "size in bytes");
    const auto count = count_of(words[1], here(), "count of elements");
    if (words[from - skipped] == "N/A") return;  // the operation has no such direction
    ForeignRow row;
    row.collective = operation();
    row.size_bytes = size;
    row.datatype = datatype_of(column(words, "type"));
    row.in_place = in_place;
    row.knobs = nccl_tests_knobs(column(words, "redop"), column(words, "root"), groups_.size());
    row.time_us = positive_of(words[from - skipped], here(), "time in microseconds");
    row.reported = {{"size", size}, {"count", count}};
    for (const char* name : {"type", "redop", "root"}) {
      if (const auto text = column(words, name); !text.empty()) row.reported[name] = text;
    }
    row.reported["in_place"] = in_place;
    row.reported.update(figures(words, from, skipped));
    // Before "#wrong" there was "error": the largest difference, not a count.
    const auto wrong =
        std::find(columns_.begin() + static_cast<std::ptrdiff_t>(from), columns_.end(), "#wrong");
    if (wrong != columns_.end()) {
      const auto place = static_cast<std::size_t>(wrong - columns_.begin());
      row.wrong = wrong_of(words[place - skipped], here());
    }
    starts_.back().rows.push_back(std::move(row));
  }

  std::string path_;
  const ImportOptions& options_;
  std::size_t line_ = 0;
  std::set<int> groups_;  ///< of the start's ranks, as far as it lists them
  int measured_group_ = 0;
  std::vector<std::string> columns_;
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
