#include "orchestrator/import/suite_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/import_options.hpp"
#include "orchestrator/import/log_lines.hpp"

namespace dynamiccl {
namespace {

/// A word that a column of numbers could print, also a damaged one.
bool is_value_like(const std::string& word) {
  const auto first = static_cast<unsigned char>(word.front());
  return std::isdigit(first) != 0 || first == '-' || first == '+' || first == '.' ||
         number_of(word) || word == "N/A" || verdict_of(word);
}

/// Names of columns without case, blanks and the unit of times, as "avglatency" and "t_avg".
std::string time_name(const std::string& title) {
  auto name = without_blanks(lower_case(title));
  for (const std::string_view unit : {"(us)", "[usec]"})
    if (name.ends_with(unit)) name.resize(name.size() - unit.size());
  return name;
}

/// The columns of one time of all ranks. A program of two ranks prints one time, which is no least
/// and no largest. Times of non-blocking tests, percentiles and other units are none of them.
const std::set<std::string>& time_names(RankAggregation aggregation) {
  static const std::set<std::string> mean{"latency", "avglatency", "t", "t_avg"};
  static const std::set<std::string> least{"minlatency", "t_min"};
  static const std::set<std::string> most{"maxlatency", "t_max"};
  return aggregation == RankAggregation::min   ? least
         : aggregation == RankAggregation::max ? most
                                               : mean;
}

/// A comment that may begin another program's table; others are notes of whoever kept the log.
bool looks_like_title(const std::string& text) {
  const auto words = words_of(text);
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    const bool version =
        word.size() > 1 && word[0] == 'v' && std::isdigit(static_cast<unsigned char>(word[1])) != 0;
    return version || word == "Test" || word == "Benchmark" || word == "Benchmarking";
  });
}

}  // namespace

const SuiteTest* test_titled(std::span<const SuiteTest> tests, std::string_view title) {
  for (const auto& test : tests)
    if (test.title == title) return &test;
  return nullptr;
}

std::string SuiteReader::here() const { return fmt::format("{}:{}", path_, line_); }

void SuiteReader::refuse(const std::string& why) const {
  throw Error(ErrorKind::data, here() + ": " + why);
}

std::vector<ForeignStart> SuiteReader::read(const std::string& text, std::string_view form) {
  for (const auto& line : log_lines(text, path_)) {
    line_ = line.number;
    read_line(std::string(trim(line.text)));
  }
  apply_failures();
  if (!left_out_.empty() && std::all_of(starts_.begin(), starts_.end(),
                                        [](const auto& start) { return start.rows.empty(); }))
    throw Error(ErrorKind::data, fmt::format("{}: what is in it has no equal here: {}; read are {}",
                                             path_, join(left_out_, ", "), form));
  auto starts = with_rows(std::move(starts_), path_, form);
  starts.front().left_out = std::move(left_out_);
  return starts;
}

void SuiteReader::read_line(const std::string& line) {
  if (line.empty() || read_title(line)) return;
  if (auto columns = columns_in(line); !columns.empty()) return read_heading(std::move(columns));
  if (line.starts_with('#')) {
    const auto text = join(words_of(line.substr(1)), " ");
    if (text.find_first_not_of("-. ") == std::string::npos) return;
    if (test_ == nullptr || starts_.back().rows.empty()) return read_comment(text);
    // Rows below it are of the same test only where nothing begins another.
    if (looks_like_title(text)) end_table();
    note_line_ = line_;
    note_ = text;
    return read_other(text);
  }
  const auto words = words_of(line);
  if (read_sample_without_time(words)) return;
  if (is_row(words)) return columns_.empty() ? note_lost_row(words) : read_row(words);
  read_other(line);
}

void SuiteReader::begin_test(const SuiteTest& test, const std::string& datatype) {
  apply_failures();
  test_ = &test;
  datatype_ = datatype;
  columns_.clear();
  note_line_ = 0;
  told_lost_ = false;
  last_row_.reset();
  starts_.emplace_back();
  starts_.back().line = line_;
}

void SuiteReader::leave_out(const std::string& what) {
  apply_failures();
  end_table();
  note_line_ = 0;
  told_lost_ = true;  // they are of what is reported here
  left_out_.push_back(fmt::format("{} (line {})", what, line_));
}

void SuiteReader::end_table() {
  test_ = nullptr;
  columns_.clear();
  told_lost_ = false;
}

void SuiteReader::read_heading(std::vector<std::string> columns) {
  if (test_ == nullptr) return;
  if (!columns_.empty()) return read_second_heading();
  note_line_ = 0;
  columns_ = std::move(columns);
  auto names = columns_;
  size_column_ = names[0] == "Group" ? 1 : 0;
  if (lower_case(names[0]).starts_with("size")) names[0] = "size";
  require_distinct(names, here());
  if (std::count_if(names.begin(), names.end(), is_verdict_column) > 1)
    refuse(fmt::format("the heading \"{}\" has two columns of verdicts", join(columns_, " | ")));
  if (time_columns().size() > 1)
    refuse(
        fmt::format("the heading \"{}\" has two columns of the {} over the ranks, so which of "
                    "them is the time is not known; correct the heading",
                    join(columns_, " | "), name_of(options_.aggregation)));
}

/// Launchers and schedulers write between the rows. A line of a row's form is one, whatever its
/// numbers are; a sentence that begins with a number is none.
bool SuiteReader::is_row(const std::vector<std::string>& words) const {
  if (words.empty() || !is_value_like(words[0]) || verdict_of(words[0])) return false;
  if (number_of(words[0]) && std::all_of(words.begin(), words.end(), is_value_like)) return true;
  // A damaged row is still mostly numbers, "64 total processes killed" is not.
  const auto values =
      static_cast<std::size_t>(std::count_if(words.begin(), words.end(), is_value_like));
  return !columns_.empty() && 2 * values > words.size() &&
         (words.size() == columns_.size() || number_of(words[0]));
}

/// "4194304 out-of-mem.; needed X= 1.5 GB ...": the Intel MPI Benchmarks had no time for it.
bool SuiteReader::read_sample_without_time(const std::vector<std::string>& words) {
  if (columns_.empty() || words.size() < 2 || !number_of(words[0])) return false;
  for (std::size_t i = 1; i < std::min<std::size_t>(3, words.size()); ++i) {
    if (!words[i].starts_with("out-of-mem") && !words[i].starts_with("int-overflow") &&
        !words[i].starts_with("time-out"))
      continue;
    left_out_.push_back(fmt::format("{} of {} bytes, which says \"{}\" (line {})", test_->title,
                                    words[i - 1], words[i], line_));
    return true;
  }
  return false;
}

/// Rows of an unknown table are not read, but reported.
void SuiteReader::note_lost_row(const std::vector<std::string>& words) {
  if (words.size() < 2 || told_lost_) return;
  told_lost_ = true;
  left_out_.push_back(note_line_ > 0
                          ? fmt::format("rows below the comment in line {}", note_line_)
                          : fmt::format("rows without a title or heading (line {})", line_));
}

/// Parts of the size printed that ours counts together.
std::uint64_t SuiteReader::parts() const {
  if (!test_->size_per_rank) return 1;
  if (const auto& known = starts_.back().ranks)
    return static_cast<std::uint64_t>(std::max(1, *known));
  if (options_.ranks > 0) return static_cast<std::uint64_t>(options_.ranks);
  throw Error(ErrorKind::input,
              here() + ": no line above says the number of ranks, which the sizes of " +
                  std::string(test_->title) + " are parts for; give --ranks N");
}

void SuiteReader::require_growth(std::uint64_t size, std::uint64_t group) {
  const auto row = std::pair(size, group);
  if (last_row_ && row <= *last_row_)
    refuse(
        fmt::format("{} bytes come behind {}: sizes only grow in one test, so these are rows of "
                    "two programs, or of a test whose title is missing",
                    size, last_row_->first));
  last_row_ = row;
}

std::vector<std::size_t> SuiteReader::time_columns() const {
  std::vector<std::size_t> places;
  for (std::size_t i = 1; i < columns_.size(); ++i)
    if (time_names(options_.aggregation).contains(time_name(columns_[i]))) places.push_back(i);
  return places;
}

/// Microseconds of a message from the column of --rank-aggregation, or by a bandwidth.
void SuiteReader::set_time(ForeignRow& row, const std::vector<std::string>& words,
                           std::uint64_t size) const {
  const auto word = [&](std::size_t at) { return at < words.size() ? words[at] : std::string(); };
  if (const auto times = time_columns(); !times.empty()) {
    const auto& time = word(times.front());
    row.resolution_us = resolution_of(time);
    row.time_us = prints_zero_ && number_of(time) == 0.0
                      ? std::max(1e-3, row.resolution_us)
                      : positive_of(time, here(), "time in microseconds");
    return;
  }
  const auto heading = join(columns_, " | ");
  if (options_.aggregation != RankAggregation::mean)
    refuse(
        fmt::format("the heading \"{0}\" has no column of the {1} over the ranks, which "
                    "--rank-aggregation {1} asks for; measure again with all columns (OSU: -f), or "
                    "import the averages without --rank-aggregation",
                    heading, name_of(options_.aggregation)));
  const auto rate = std::find_if(columns_.begin(), columns_.end(), [](const std::string& name) {
    return name.find("(MB/s)") != std::string::npos;
  });
  if (rate == columns_.end())
    refuse(fmt::format("no time or bandwidth under the heading \"{}\": {}", heading,
                       join(words, " ")));
  const auto& printed = word(static_cast<std::size_t>(rate - columns_.begin()));
  const double bandwidth = positive_of(printed, here(), "bandwidth in MB/s");
  if (size == 0) refuse("a message of 0 bytes has a bandwidth; remove the row");
  // A MB is 10^6 bytes there, so that bytes per (MB/s) are microseconds.
  row.time_us = static_cast<double>(size) / bandwidth;
  row.resolution_us = row.time_us * resolution_of(printed) / bandwidth;
}

/// A value that is neither size nor time: calls, verdicts, and what is only reported.
void SuiteReader::add_value(ForeignRow& row, const std::string& column, const std::string& word) {
  const auto number = number_of(word);
  row.reported[column] = number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(word);
  if (column == "Iterations" || column == "#repetitions") {
    // Large messages have fewer than small ones.
    row.calls = static_cast<std::int64_t>(count_of(word, here(), "number of iterations"));
    if (row.calls == 0) refuse("a time of 0 iterations is none; remove the row");
  } else if (column == "defects") {
    if (!number || !(*number >= 0))
      refuse(fmt::format("defects has to be a number; found \"{}\"", word));
    row.wrong = *number > 0 ? 1 : 0;
    if (*number > 0) row.wrong_reason = "the suite's own check counts defects";
  } else if (is_verdict_column(column)) {
    const auto verdict = verdict_of(word);
    if (!verdict)
      refuse(
          fmt::format("the validation has to be Pass or Fail; found \"{}\". Correct or remove "
                      "this entry, or import the program's own output",
                      word));
    starts_.back().verify = true;
    row.wrong = *verdict ? 0 : 1;
    if (!*verdict) row.wrong_reason = "the program's own validation says " + word;
  } else if (says_failed(word)) {
    row.wrong = 1;
    row.wrong_reason = fmt::format("the program's own column {} says {}", column, word);
  }
}

void SuiteReader::read_row(const std::vector<std::string>& words) {
  const auto word = [&](std::size_t at) { return at < words.size() ? words[at] : std::string(); };
  const auto size = count_of(word(size_column_), here(), "size in bytes",
                             std::numeric_limits<std::int64_t>::max() / parts());
  auto& start = starts_.back();
  ForeignRow row;
  if (size_column_ > 0) row.knobs["group"] = word(0);
  set_time(row, words, size);
  row.collective = settled_collective(std::string(test_->collective), here(), options_);
  row.size_bytes = size * parts();
  row.datatype = datatype_;
  if (!test_->knob.empty()) row.knobs["test"] = std::string(test_->knob);
  if (test_->reduces && !redop_.empty()) row.knobs["redop"] = redop_;
  // Memory of a GPU is another measurement than the host's, and so are groups at the same time.
  for (const char* name : {"buffers", "groups"})
    if (const auto found = start.settings.find(name);
        found != start.settings.end() && found->second != "host-host")
      row.knobs[name] = found->second;
  row.reported[size_name_] = size;
  for (std::size_t i = size_column_ + 1; i < columns_.size(); ++i)
    add_value(row, columns_[i], word(i));
  if (words.size() != columns_.size())
    refuse(fmt::format("a row of {} values under a heading of {}: {}", words.size(),
                       columns_.size(), join(words, " ")));
  require_growth(size, size_column_ > 0 ? count_of(words[0], here(), "group") : 0);
  if (note_line_ > 0)
    start.warnings.push_back(fmt::format(
        "rows below the note \"{}\" (line {}) are taken for the same test's, as nothing begins "
        "another",
        note_.substr(0, 60), std::exchange(note_line_, 0)));
  start.rows.push_back(std::move(row));
}

/// The size that the error line names failed; where neither it nor a row says which, all did.
void SuiteReader::apply_failures() {
  for (const auto& failure : std::exchange(failures_, {})) {
    const auto& size = failure.first;
    if (starts_.empty()) return;
    auto& start = starts_.back();
    start.verify = true;
    start.warnings.push_back(fmt::format("its own validation failed{} (line {})",
                                         size ? fmt::format(" at {} bytes", *size) : "",
                                         failure.second));
    const bool told = std::any_of(start.rows.begin(), start.rows.end(), [&](const ForeignRow& row) {
      return row.wrong.value_or(0) > 0 || (size && row.reported[size_name_] == *size);
    });
    for (auto& row : start.rows) {
      if (row.wrong.value_or(0) > 0 || (told && !(size && row.reported[size_name_] == *size)) ||
          (!told && size))
        continue;
      row.wrong = 1;
      row.wrong_reason = "the program says DATA VALIDATION ERROR";
    }
  }
}

}  // namespace dynamiccl
