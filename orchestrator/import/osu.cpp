#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <regex>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/import_options.hpp"

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

const OsuTest& test_of(const std::string& title, const std::string& path, std::size_t line) {
  for (const auto& test : kTests) {
    if (test.title == title) return test;
  }
  std::vector<std::string> known;
  for (const auto& test : kTests) known.emplace_back(test.title);
  throw Error(ErrorKind::data,
              fmt::format("{}:{}: the OSU test \"{}\" has no equal here; known are "
                          "{}",
                          path, line, title, join(known, ", ")));
}

/// Column titles hold single blanks and are set apart by more.
std::vector<std::string> columns_of(const std::string& heading) {
  static const std::regex gap(R"(\s{2,}|\t)");
  const std::string text(trim(heading.substr(1)));
  std::vector<std::string> columns;
  for (std::sregex_token_iterator word(text.begin(), text.end(), gap, -1), end; word != end; ++word)
    columns.push_back(std::string(trim(word->str())));
  return columns;
}

class OsuReader {
 public:
  OsuReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}

  std::vector<ForeignStart> read(const std::string& text) {
    for (const auto& line : clean_lines(text)) {
      ++line_;
      if (line.starts_with('#')) {
        read_comment(line);
      } else if (test_ != nullptr && !columns_.empty()) {
        read_row(words_of(line));
      }
    }
    return with_rows(std::move(starts_), path_,
                     "the OSU micro-benchmarks: a line \"# OSU MPI ... Test v...\", a heading \"# "
                     "Size ...\" and rows below it");
  }

 private:
  void read_comment(const std::string& line) {
    static const std::regex title(R"(^#\s*OSU ([A-Za-z]+)(-\S+)? (.*) Test v(\S+))");
    static const std::regex datatype(R"(^#\s*Datatype:\s*([A-Za-z_0-9]+))");
    std::smatch match;
    if (std::regex_search(line, match, title)) {
      test_ = &test_of(match[3], path_, line_);
      columns_.clear();
      starts_.emplace_back();
      auto& start = starts_.back();
      start.source["version"] = match[4].str();
      start.source["test"] = match[3].str();
      start.source["library"] = match[1].str() + match[2].str();
      if (is_point_to_point(*test_)) start.ranks = 2;
      // Neither is printed before version 7: the programs' own.
      datatype_ = test_->reduces ? "float32" : "char";
      datatype_known_ = false;
    } else if (test_ != nullptr && std::regex_search(line, match, datatype)) {
      datatype_ = datatype_of(match[1]);
      datatype_known_ = true;
    } else if (test_ != nullptr && line.substr(1).find("Size") != std::string::npos) {
      columns_ = columns_of(line);
    }
  }

  [[nodiscard]] std::string here() const { return fmt::format("{}:{}", path_, line_); }

  /// The least and the largest over the ranks stand beside the average with -f. A program of two
  /// ranks prints one time, which is no least and no largest.
  [[nodiscard]] bool is_time(const std::string& title) const {
    if (title.find("Latency") == std::string::npos) return false;
    const bool least = title.starts_with("Min ");
    const bool largest = title.starts_with("Max ");
    switch (options_.aggregation) {
      case RankAggregation::min:
        return least;
      case RankAggregation::max:
        return largest;
      case RankAggregation::mean:
        break;
    }
    return !least && !largest;
  }

  /// Time of a message in microseconds from the column of --rank-aggregation, or by a bandwidth.
  [[nodiscard]] double time_of(const std::vector<std::string>& words, std::uint64_t size) const {
    for (std::size_t i = 1; i < columns_.size() && i < words.size(); ++i) {
      if (is_time(columns_[i])) return positive_of(words[i], here(), "time in microseconds");
      if (options_.aggregation == RankAggregation::mean &&
          columns_[i].find("MB/s") != std::string::npos)
        return time_by_bandwidth(words[i], size);
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
  /// numbers are.
  [[nodiscard]] bool is_row(const std::vector<std::string>& words) const {
    if (words.empty()) return false;
    if (number_of(words[0])) return true;
    const auto first = static_cast<unsigned char>(words[0].front());
    return (std::isdigit(first) != 0 || first == '-' || first == '+') &&
           words.size() == columns_.size() && words.size() > 1 && number_of(words[1]);
  }

  void read_row(const std::vector<std::string>& words) {
    if (!is_row(words)) return;
    const auto size = count_of(words[0], here(), "size in bytes",
                               std::numeric_limits<std::int64_t>::max() / parts());
    auto& start = starts_.back();
    ForeignRow row;
    row.time_us = time_of(words, size);
    row.collective = settled_collective(std::string(test_->collective), here(), options_);
    row.size_bytes = size * parts();
    row.datatype = datatype_;
    // A window of messages is another measurement than one there and back.
    if (is_point_to_point(*test_) && test_->title != "Latency")
      row.knobs["test"] = std::string(test_->title);
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
    if (!datatype_known_) start.source["assumed_datatype"] = datatype_;
    start.rows.push_back(std::move(row));
  }

  /// What -c found; nullopt where nothing was checked. It counts no values.
  [[nodiscard]] std::optional<bool> passed_validation(const std::vector<std::string>& words) const {
    const auto column = std::find(columns_.begin(), columns_.end(), "Validation");
    if (column == columns_.end()) return std::nullopt;
    const auto place = static_cast<std::size_t>(column - columns_.begin());
    const std::string word = place < words.size() ? words[place] : "";
    if (word == "Pass") return true;
    if (word == "Fail") return false;
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
  const OsuTest* test_ = nullptr;
  std::string datatype_;
  bool datatype_known_ = false;
  std::vector<std::string> columns_;
  std::vector<ForeignStart> starts_;
};

}  // namespace

std::vector<ForeignStart> read_osu_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options) {
  return OsuReader(path, options).read(text);
}

}  // namespace dynamiccl
