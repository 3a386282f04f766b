#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/log_lines.hpp"

namespace dynamiccl {
namespace {

/// A test of the suite by the name in its title.
struct OsuTest {
  std::string_view title;
  std::string_view collective;
  /// Its sizes are one rank's part; ours, as nccl-tests', all parts together.
  bool size_per_rank;
  bool reduces;
};

constexpr std::array kTests{
    OsuTest{"Latency", "sendrecv", false, false},
    OsuTest{"Bandwidth", "sendrecv", false, false},
    OsuTest{"Bi-Directional Bandwidth", "sendrecv", false, false},
    OsuTest{"Allreduce Latency", "allreduce", false, true},
    OsuTest{"Reduce Latency", "reduce", false, true},
    OsuTest{"Reduce_scatter Latency", "reduce_scatter", false, true},
    OsuTest{"Broadcast Latency", "broadcast", false, false},
    OsuTest{"Bcast Latency", "broadcast", false, false},
    OsuTest{"Allgather Latency", "allgather", true, false},
    OsuTest{"Gather Latency", "gather", true, false},
    OsuTest{"Scatter Latency", "scatter", true, false},
    OsuTest{"All-to-All Personalized Exchange Latency", "alltoall", true, false},
    OsuTest{"Alltoall Latency", "alltoall", true, false}};

bool is_point_to_point(const OsuTest& test) { return test.collective == "sendrecv"; }

const OsuTest* test_of(const std::string& title) {
  for (const auto& test : kTests) {
    if (test.title == title) return &test;
  }
  return nullptr;
}

/// "OSU MPI-CUDA Allreduce Latency Test v5.9" in its parts.
struct Title {
  std::string library;  ///< "MPI-CUDA"; "" where the form is another
  std::string test;     ///< "Allreduce Latency", or all that stands before "Test"
  std::string version;
};

/// The title of a test in a line, of OSU's or a like suite; nullopt where there is none.
std::optional<Title> title_in(const std::string& line) {
  std::string text(trim(line));
  const bool comment = text.starts_with('#');
  if (comment) text = trim(text.substr(1));
  const auto end = text.find(" Test");
  const bool suite = text.starts_with("OSU ") || text.starts_with("OMB");
  if (end == std::string::npos) return std::nullopt;
  const auto behind = words_of(text.substr(end + 5));
  const bool version = !behind.empty() && behind[0].size() > 1 && behind[0][0] == 'v' &&
                       std::isdigit(static_cast<unsigned char>(behind[0][1])) != 0;
  if (!suite && !(comment && version)) return std::nullopt;
  Title title;
  title.version = version ? behind[0].substr(1) : "";
  title.test = text.substr(0, end);
  if (!text.starts_with("OSU ") || !version) return title;
  auto words = words_of(title.test);
  if (words.size() < 3) return title;
  const auto library = words[1].substr(0, words[1].find('-'));
  if (library != "MPI" && library != "NCCL" && library != "RCCL") return title;
  title.library = words[1];
  title.test = join({words.begin() + 2, words.end()}, " ");
  return title;
}

/// Column titles hold single blanks and are set apart by more.
std::vector<std::string> columns_of(const std::string& heading) {
  const std::string text(trim(heading.substr(1)));
  std::vector<std::string> columns;
  for (std::size_t at = 0; at < text.size();) {
    auto end = at;
    while (end < text.size() && text[end] != '\t' && text.compare(end, 2, "  ") != 0) ++end;
    columns.emplace_back(trim(text.substr(at, end - at)));
    at = std::min(text.find_first_not_of(" \t", end), text.size());
  }
  return columns;
}

/// A word that a column of numbers could print, also a damaged one.
bool is_value_like(const std::string& word) {
  const auto first = static_cast<unsigned char>(word.front());
  return std::isdigit(first) != 0 || first == '-' || first == '+' || first == '.' ||
         number_of(word) || word == "N/A" || verdict_of(word);
}

class OsuReader {
 public:
  OsuReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}

  std::vector<ForeignStart> read(const std::string& text) {
    for (const auto& line : log_lines(text, path_)) {
      line_ = line.number;
      read_line(std::string(trim(line.text)));
    }
    if (!left_out_.empty() && std::all_of(starts_.begin(), starts_.end(),
                                          [](const auto& start) { return start.rows.empty(); }))
      throw Error(ErrorKind::data,
                  fmt::format("{}: every OSU test in it has no equal here: {}; known are {}", path_,
                              join(left_out_, ", "), known_titles()));
    auto starts =
        with_rows(std::move(starts_), path_,
                  "the OSU micro-benchmarks: a line \"# OSU MPI ... Test v...\", a heading \"# "
                  "Size ...\" and rows below it");
    starts.front().left_out = std::move(left_out_);
    return starts;
  }

 private:
  static std::string known_titles() {
    std::vector<std::string> known;
    for (const auto& test : kTests) known.emplace_back(test.title);
    return join(known, ", ");
  }

  void read_line(const std::string& line) {
    if (const auto title = title_in(line)) return begin(*title);
    if (line.starts_with('#')) return read_comment(line);
    if (test_ != nullptr && !columns_.empty()) {
      const auto words = words_of(line);
      if (is_row(words)) return read_row(words);
    }
    if (comment_line_ != 0) note_rows_below_comment(line);
    read_other(line);
  }

  /// Rows of nobody: what comes below a comment is not known, but told.
  void note_rows_below_comment(const std::string& line) {
    const auto words = words_of(line);
    if (words.size() < 2 || !std::all_of(words.begin(), words.end(), is_value_like)) return;
    left_out_.push_back(fmt::format("rows below the comment in line {}", comment_line_));
    comment_line_ = 0;
  }

  void begin(const Title& title) {
    columns_.clear();
    comment_line_ = 0;
    test_ = test_of(title.test);
    if (title.library.empty()) test_ = nullptr;
    if (test_ == nullptr) {
      left_out_.push_back(fmt::format("{} (line {})", title.test, line_));
      return;
    }
    title_ = title;
    // Neither is printed before version 7: the programs' own.
    datatype_ = test_->reduces ? "float32" : "char";
    datatype_known_ = false;
    begin_table();
  }

  void begin_table() {
    if (!starts_.empty() && starts_.back().rows.empty()) {
      if (starts_.back().source["test"] == title_.test && !others_) refuse_separate();
      starts_.pop_back();
    }
    others_ = false;
    starts_.emplace_back();
    auto& start = starts_.back();
    start.line = line_;
    start.source["version"] = title_.version;
    start.source["test"] = title_.test;
    start.source["library"] = title_.library;
    start.settings = std::exchange(settings_, exported_);
    start.banner = std::exchange(banner_, "");
    if (is_point_to_point(*test_)) {
      start.ranks = 2;
    } else if (processes_) {
      start.ranks = *processes_;
      start.source["processes_by_line"] = processes_line_;
    }
  }

  /// Lines of launchers, schedulers and scripts: what they say of the tests that follow.
  void read_other(const std::string& line) {
    if (line.empty()) return;
    others_ = true;
    if (line.find("DATA VALIDATION ERROR") != std::string::npos && !starts_.empty() &&
        !starts_.back().rows.empty()) {
      auto& start = starts_.back();
      start.verify = true;
      start.warnings.push_back(fmt::format("its own validation failed (line {})", line_));
      for (auto& row : start.rows) {
        if (row.wrong.value_or(0) > 0) continue;
        row.wrong = 1;
        row.wrong_reason = "OSU says DATA VALIDATION ERROR";
      }
    }
    const auto words = words_of(line);
    if (const auto count = processes_in(line)) {
      processes_ = count;
      processes_line_ = line_;
    } else if (line.find("osu_") != std::string::npos && line.find("run") != std::string::npos) {
      processes_.reset();  // another command, which does not say how many
    }
    banner_ = line;
    for (auto& [name, value] : settings_in(line)) {
      if (line.starts_with("export ")) exported_[name] = value;
      settings_[name] = value;
    }
  }

  void read_comment(const std::string& line) {
    const std::string text(trim(line.substr(1)));
    if (text.empty()) return;
    if (test_ == nullptr) return read_other(text);
    const bool after_rows = !starts_.back().rows.empty();
    if (text.starts_with("Datatype:")) {
      if (after_rows) begin_table();
      std::string name(trim(text.substr(9)));
      while (!name.empty() && name.back() == '.') name.pop_back();
      datatype_ = datatype_of(name);
      datatype_known_ = true;
      columns_.clear();
    } else if (text.starts_with("Size")) {
      if (after_rows && !columns_.empty()) return end_test(text);
      if (!columns_.empty()) refuse_separate();
      columns_ = columns_of(line);
      check_columns();
    } else if (after_rows) {
      end_test(text);
    } else {
      read_setting(text);
    }
  }

  void check_columns() const {
    const auto name = without_blanks(lower_case(columns_.front()));
    if (name != "size" && name != "size(b)" && name != "size(bytes)")
      throw Error(ErrorKind::data,
                  fmt::format("{}: sizes are in bytes, under \"Size\"; found the heading \"{}\"",
                              here(), columns_.front()));
    auto names = columns_;
    names.front() = "size";
    require_distinct(names, here());
    if (std::count_if(names.begin(), names.end(), is_verdict_column) > 1)
      throw Error(ErrorKind::data, fmt::format("{}: the heading \"{}\" has two columns of verdicts",
                                               here(), join(columns_, " | ")));
  }

  /// Below rows, a comment that is no datatype begins something that is not known: no row of it is
  /// one of the test before.
  void end_test(const std::string& text) {
    test_ = nullptr;
    columns_.clear();
    comment_line_ = line_;
    read_other(text);
    if (heading_place("# " + text) != std::string::npos)
      left_out_.push_back(fmt::format("a table without title (line {})", line_));
  }

  /// What a test says of itself above its heading tells it from the same test done otherwise.
  void read_setting(const std::string& text) {
    auto& start = starts_.back();
    const auto words = words_of(text);
    const auto buffer = [&](std::string_view side) -> std::string {
      for (std::size_t i = 0; i + 3 < words.size(); ++i)
        if (words[i] == side && words[i + 1] == "Buffer") return lower_case(words[i + 3]);
      return "";
    };
    const auto send = buffer("Send");
    const auto receive = buffer("Receive");
    if (!send.empty() && !receive.empty()) {
      buffers_of(start) = send + "-" + receive;
      return;
    }
    if (const auto count = processes_in(text); count && !start.ranks) start.ranks = *count;
    const auto colon = text.find(':');
    if (colon == std::string::npos) {
      start.settings["said." + text] = "1";
      return;
    }
    std::string name(trim(text.substr(0, colon)));
    std::replace(name.begin(), name.end(), ' ', '_');
    start.settings[lower_case(name)] = trim(text.substr(colon + 1));
  }

  static std::string& buffers_of(ForeignStart& start) { return start.settings["buffers"]; }

  [[noreturn]] void refuse_separate() const {
    throw Error(
        ErrorKind::data,
        fmt::format("{}: the job ran as separate programs that do not know each other: a second "
                    "one begins \"{}\" before the first has printed a row of it. Start the ranks "
                    "with the launcher of the MPI that OSU was built with, or import each "
                    "program's output by itself",
                    here(), title_.test));
  }

  [[nodiscard]] std::string here() const { return fmt::format("{}:{}", path_, line_); }

  /// The least and the largest over the ranks stand beside the average with -f. A program of two
  /// ranks prints one time, which is no least and no largest. Other times, as those of non-blocking
  /// tests, percentiles, or in another unit, are none of them.
  [[nodiscard]] bool is_time(const std::string& title) const {
    auto name = without_blanks(lower_case(title));
    if (name.ends_with("(us)")) name.erase(name.size() - 4);
    switch (options_.aggregation) {
      case RankAggregation::min:
        return name == "minlatency";
      case RankAggregation::max:
        return name == "maxlatency";
      case RankAggregation::mean:
        break;
    }
    return name == "latency" || name == "avglatency";
  }

  /// Time of a message in microseconds from the column of --rank-aggregation, or by a bandwidth.
  [[nodiscard]] double time_of(const std::vector<std::string>& words, std::uint64_t size,
                               double& resolution_us) const {
    for (std::size_t i = 1; i < columns_.size() && i < words.size(); ++i) {
      if (is_time(columns_[i])) {
        resolution_us = resolution_of(words[i]);
        return positive_of(words[i], here(), "time in microseconds");
      }
      if (options_.aggregation == RankAggregation::mean &&
          columns_[i].find("MB/s") != std::string::npos) {
        const double time = time_by_bandwidth(words[i], size);
        resolution_us = time * resolution_of(words[i]) / *number_of(words[i]);
        return time;
      }
    }
    const std::string heading = join(columns_, " | ");
    if (options_.aggregation != RankAggregation::mean &&
        std::none_of(columns_.begin(), columns_.end(),
                     [&](const std::string& title) { return is_time(title); }))
      throw Error(ErrorKind::data,
                  fmt::format("{0}: the heading \"{1}\" has no column of the {2} over the ranks, "
                              "which --rank-aggregation {2} asks for; measure again with OSU's -f, "
                              "or import the averages without --rank-aggregation",
                              here(), heading, name_of(options_.aggregation)));
    throw Error(ErrorKind::data,
                fmt::format("{}: no time or bandwidth under the heading \"{}\": {}", here(),
                            heading, join(words, " ")));
  }

  [[nodiscard]] double time_by_bandwidth(const std::string& word, std::uint64_t size) const {
    const double bandwidth = positive_of(word, here(), "bandwidth in MB/s");
    if (size == 0)
      throw Error(ErrorKind::data,
                  here() + ": a message of 0 bytes has a bandwidth; remove the row");
    // A MB is 10^6 bytes there, so that bytes per (MB/s) are microseconds.
    return static_cast<double>(size) / bandwidth;
  }

  int ranks() const {
    if (options_.ranks > 0) return options_.ranks;
    if (const auto known = starts_.back().ranks) return *known;
    throw Error(ErrorKind::input,
                here() + ": OSU does not print the number of ranks; give --ranks N");
  }

  /// Parts of the size printed that ours counts together.
  [[nodiscard]] std::uint64_t parts() const {
    return test_->size_per_rank ? static_cast<std::uint64_t>(ranks()) : 1;
  }

  /// Launchers and schedulers write between the rows. A line of a row's form is one, whatever its
  /// numbers are; a sentence that begins with a number is none.
  [[nodiscard]] bool is_row(const std::vector<std::string>& words) const {
    if (words.empty() || !is_value_like(words[0]) || verdict_of(words[0])) return false;
    if (number_of(words[0]) && std::all_of(words.begin(), words.end(), is_value_like)) return true;
    // A damaged row is still mostly numbers, "64 total processes killed" is not.
    const auto values = std::count_if(words.begin(), words.end(), is_value_like);
    return words.size() == columns_.size() && 2 * static_cast<std::size_t>(values) > words.size();
  }

  void read_row(const std::vector<std::string>& words) {
    const auto size = count_of(words[0], here(), "size in bytes",
                               std::numeric_limits<std::int64_t>::max() / parts());
    auto& start = starts_.back();
    if (!start.rows.empty() && size <= start.rows.back().reported["size"].get<std::uint64_t>())
      throw Error(
          ErrorKind::data,
          fmt::format("{}: {} bytes come behind {}: sizes only grow in one test, so these "
                      "are rows of two programs, or of a test whose title is missing",
                      here(), size, start.rows.back().reported["size"].get<std::uint64_t>()));
    ForeignRow row;
    row.time_us = time_of(words, size, row.resolution_us);
    row.collective = settled_collective(std::string(test_->collective), here(), options_);
    row.size_bytes = size * parts();
    row.datatype = datatype_;
    // A window of messages is another measurement than one there and back.
    if (is_point_to_point(*test_) && test_->title != "Latency")
      row.knobs["test"] = std::string(test_->title);
    // Memory of a GPU is another measurement than the host's.
    if (const auto buffers = start.settings.find("buffers");
        buffers != start.settings.end() && buffers->second != "host-host")
      row.knobs["buffers"] = buffers->second;
    row.reported["size"] = size;
    for (std::size_t i = 1; i < columns_.size() && i < words.size(); ++i) {
      const auto value = number_of(words[i]);
      row.reported[columns_[i]] =
          value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(words[i]);
      // Large messages have fewer than small ones.
      if (columns_[i] == "Iterations") row.calls = calls_of(words[i]);
    }
    if (const auto passed = passed_validation(words)) {
      start.verify = true;
      row.wrong = *passed ? 0 : 1;
      if (!*passed) row.wrong_reason = "OSU's own validation says Fail";
    }
    if (words.size() != columns_.size())
      throw Error(ErrorKind::data,
                  fmt::format("{}: a row of {} values under a heading of {}: {}", here(),
                              words.size(), columns_.size(), join(words, " ")));
    if (!datatype_known_) start.source["assumed_datatype"] = datatype_;
    start.rows.push_back(std::move(row));
  }

  /// What -c found; nullopt where nothing was checked. It counts no values.
  [[nodiscard]] std::optional<bool> passed_validation(const std::vector<std::string>& words) const {
    const auto column = std::find_if(columns_.begin(), columns_.end(), is_verdict_column);
    if (column == columns_.end()) return std::nullopt;
    const auto place = static_cast<std::size_t>(column - columns_.begin());
    const std::string word = place < words.size() ? words[place] : "";
    if (const auto verdict = verdict_of(word)) return verdict;
    throw Error(ErrorKind::data,
                fmt::format("{}: the validation has to be Pass or Fail; found \"{}\". Correct or "
                            "remove this entry, or import the program's own output",
                            here(), word));
  }

  [[nodiscard]] std::int64_t calls_of(const std::string& word) const {
    const auto calls = static_cast<std::int64_t>(count_of(word, here(), "number of iterations"));
    if (calls > 0) return calls;
    throw Error(ErrorKind::data, here() + ": a time of 0 iterations is none; remove the row");
  }

  std::string path_;
  const ImportOptions& options_;
  std::size_t line_ = 0;
  const OsuTest* test_ = nullptr;  ///< nullptr = none, or one that is unknown here
  Title title_;
  bool others_ = false;  ///< lines of other programs since the table began
  std::vector<std::string> left_out_;
  std::optional<int> processes_;  ///< by the last command line
  std::size_t processes_line_ = 0;
  std::string banner_;
  std::map<std::string, std::string> settings_;  ///< of lines since the table before
  std::map<std::string, std::string> exported_;  ///< hold for all that follow
  std::string datatype_;
  bool datatype_known_ = false;
  std::vector<std::string> columns_;
  std::size_t comment_line_ = 0;  ///< of the one that ended a test; 0: none since the last title
  std::vector<ForeignStart> starts_;
};

}  // namespace

std::vector<ForeignStart> read_osu_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options) {
  return OsuReader(path, options).read(text);
}

}  // namespace dynamiccl
