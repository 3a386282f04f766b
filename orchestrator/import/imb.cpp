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

/// A benchmark of the suite by the name in its title.
struct ImbTest {
  std::string_view title;
  std::string_view collective;
  /// Its sizes are one rank's part; ours, as nccl-tests', all parts together.
  bool size_per_rank;
  bool reduces;
  std::string_view knob;  ///< what tells it from the collective's usual form; "" = it is that
};

constexpr std::array kImbTests{
    ImbTest{"Allreduce", "allreduce", false, true, ""},
    ImbTest{"Reduce", "reduce", false, true, ""},
    ImbTest{"Reduce_scatter", "reduce_scatter", false, true, ""},
    ImbTest{"Reduce_scatter_block", "reduce_scatter", false, true, "block"},
    ImbTest{"Bcast", "broadcast", false, false, ""},
    ImbTest{"Allgather", "allgather", true, false, ""},
    ImbTest{"Allgatherv", "allgather", true, false, "v"},
    ImbTest{"Gather", "gather", true, false, ""},
    ImbTest{"Gatherv", "gather", true, false, "v"},
    ImbTest{"Scatter", "scatter", true, false, ""},
    ImbTest{"Scatterv", "scatter", true, false, "v"},
    ImbTest{"Alltoall", "alltoall", true, false, ""},
    ImbTest{"Alltoallv", "alltoall", true, false, "v"},
    ImbTest{"PingPong", "sendrecv", false, false, ""},
    ImbTest{"PingPing", "sendrecv", false, false, "PingPing"},
    ImbTest{"Sendrecv", "sendrecv", false, false, "Sendrecv"},
    ImbTest{"Exchange", "sendrecv", false, false, "Exchange"}};

const ImbTest* imb_test_named(const std::string& title) {
  for (const auto& test : kImbTests)
    if (test.title == title) return &test;
  return nullptr;
}

/// Reads one file's text line by line.
class ImbReader {
 public:
  ImbReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}

  std::vector<ForeignStart> read(const std::string& text) {
    for (const auto& line : log_lines(text, path_)) {
      line_ = line.number;
      read_line(std::string(trim(line.text)));
    }
    if (!left_out_.empty() && std::all_of(starts_.begin(), starts_.end(),
                                          [](const auto& start) { return start.rows.empty(); }))
      throw Error(ErrorKind::data, fmt::format("{}: every benchmark in it has no equal here: {}",
                                               path_, join(left_out_, ", ")));
    auto starts = with_rows(std::move(starts_), path_,
                            "the Intel MPI Benchmarks: a line \"# Benchmarking ...\", \"# "
                            "#processes = N\", a heading \"#bytes #repetitions t...\" and rows");
    starts.front().left_out = std::move(left_out_);
    if (!ended_)
      starts.back().cut_off = fmt::format(
          "after its row of {} bytes there is no \"# All processes entering "
          "MPI_Finalize\", with which the suite ends",
          starts.back().rows.back().reported["#bytes"].dump());
    return starts;
  }

 private:
  void read_line(const std::string& line) {
    if (line.empty()) return;
    const auto words = words_of(line);
    if (words[0] == "#bytes" || words[0] == "#repetitions") return read_heading(words);
    if (line.starts_with('#')) return read_comment(std::string(trim(line.substr(1))));
    const auto numbers = static_cast<std::size_t>(
        std::count_if(words.begin(), words.end(),
                      [](const std::string& word) { return number_of(word).has_value(); }));
    // A damaged row is still mostly numbers, "64 total processes killed" is not.
    const bool is_row =
        std::isdigit(static_cast<unsigned char>(line[0])) != 0 || number_of(words[0]).has_value();
    if (!is_row || 2 * numbers <= words.size()) return;
    if (!columns_.empty()) return read_row(words);
    if (comment_line_ == 0 || numbers < 2) return;
    left_out_.push_back(fmt::format("rows below the comment in line {}", comment_line_));
    comment_line_ = 0;
  }

  void read_comment(const std::string& text) {
    if (text.empty() || text.find_first_not_of('-') == std::string::npos) return;
    const auto value = [&](std::string_view key) -> std::optional<std::string> {
      if (!text.starts_with(key)) return std::nullopt;
      const auto separator = text.find_first_of("=:", key.size());
      if (separator == std::string::npos) return std::nullopt;
      return std::string(trim(text.substr(separator + 1)));
    };
    if (text.find("MPI Benchmarks") != std::string::npos) {
      version_ = text;
    } else if (text.starts_with("All processes entering")) {
      ended_ = true;
      test_ = nullptr;
      columns_.clear();
    } else if (text.starts_with("Benchmarking ")) {
      begin(words_of(text.substr(13)));
    } else if (const auto type = value("MPI_Datatype for reductions")) {
      reduction_type_ = datatype_of(*type);
    } else if (const auto bytes = value("MPI_Datatype")) {
      type_ = datatype_of(*bytes);
    } else if (const auto operation = value("MPI_Op")) {
      operation_ = *operation;
    } else if (test_ != nullptr) {
      read_setting(text);
    }
  }

  void begin(const std::vector<std::string>& words) {
    columns_.clear();
    comment_line_ = 0;
    ended_ = false;
    const std::string title = words.empty() ? "" : words.front();
    test_ = imb_test_named(title);
    if (test_ == nullptr) {
      left_out_.push_back(fmt::format("{} (line {})", title, line_));
      return;
    }
    starts_.emplace_back();
    auto& start = starts_.back();
    start.line = line_;
    start.source["test"] = title;
    if (!version_.empty()) start.source["version"] = version_;
  }

  void read_setting(const std::string& text) {
    auto& start = starts_.back();
    if (!columns_.empty()) {
      // A comment below rows begins something that is not known.
      test_ = nullptr;
      columns_.clear();
      comment_line_ = line_;
      return;
    }
    if (text.starts_with("#processes")) {
      const auto equals = text.find('=');
      const auto words = words_of(equals == std::string::npos ? "" : text.substr(equals + 1));
      start.ranks = static_cast<int>(count_of(words.empty() ? "" : words.front(), here(),
                                              "number of processes", 1'000'000'000));
    } else if (text.starts_with('(') && text.find("groups of") != std::string::npos) {
      // "( 2 groups of 2 processes each running simultaneous )"
      const auto words = words_of(text);
      if (words.size() > 4) {
        start.ranks = static_cast<int>(
            count_of(words[4], here(), "number of processes of a group", 1'000'000'000));
        start.settings["groups"] = words[1];
      }
    } else if (text.find("additional process") == std::string::npos) {
      start.settings["said." + text] = "1";
    }
  }

  void read_heading(const std::vector<std::string>& words) {
    if (test_ == nullptr) return;
    if (!columns_.empty())
      throw Error(ErrorKind::data, here() + ": a second heading in one benchmark");
    columns_ = words;
    if (columns_.front() != "#bytes") {
      left_out_.push_back(fmt::format("{}, which sends nothing (line {})", test_->title, line_));
      columns_.clear();
      test_ = nullptr;
      return;
    }
    require_distinct(columns_, here());
    if (columns_.size() < 3 || columns_[1] != "#repetitions")
      throw Error(ErrorKind::data,
                  fmt::format("{}: a heading is \"#bytes #repetitions t...\"; found \"{}\"", here(),
                              join(words, " ")));
  }

  [[nodiscard]] std::string here() const { return fmt::format("{}:{}", path_, line_); }

  /// The column of the time that --rank-aggregation asks for.
  [[nodiscard]] std::size_t time_column() const {
    const std::string asked = options_.aggregation == RankAggregation::min   ? "t_min[usec]"
                              : options_.aggregation == RankAggregation::max ? "t_max[usec]"
                                                                             : "t_avg[usec]";
    for (const auto& name : {asked, std::string("t[usec]")}) {
      const auto found = std::find(columns_.begin(), columns_.end(), name);
      if (found == columns_.end()) continue;
      if (name == "t[usec]" && options_.aggregation != RankAggregation::mean) continue;
      return static_cast<std::size_t>(found - columns_.begin());
    }
    throw Error(ErrorKind::data,
                fmt::format("{}: the heading \"{}\" has no column {}, which the {} over the ranks "
                            "stands in",
                            here(), join(columns_, " "), asked, name_of(options_.aggregation)));
  }

  void read_row(const std::vector<std::string>& words) {
    if (words.size() != columns_.size())
      throw Error(ErrorKind::data,
                  fmt::format("{}: a row of {} values under a heading of {}: {}", here(),
                              words.size(), columns_.size(), join(words, " ")));
    auto& start = starts_.back();
    if (!start.ranks)
      throw Error(ErrorKind::data, here() + ": no line \"# #processes = N\" stands above this row");
    const std::uint64_t parts =
        test_->size_per_rank ? static_cast<std::uint64_t>(std::max(1, *start.ranks)) : 1;
    const auto size = count_of(words[0], here(), "size in bytes",
                               std::numeric_limits<std::int64_t>::max() / parts);
    if (!start.rows.empty() && size <= start.rows.back().reported["#bytes"].get<std::uint64_t>())
      throw Error(ErrorKind::data,
                  fmt::format("{}: {} bytes come behind larger ones: sizes only grow in one "
                              "benchmark, so these are rows of two programs",
                              here(), size));
    const auto time = time_column();
    ForeignRow row;
    row.time_us = time_of(words[time]);
    row.resolution_us = resolution_of(words[time]);
    row.collective = settled_collective(std::string(test_->collective), here(), options_);
    row.size_bytes = size * parts;
    row.datatype = test_->reduces ? reduction_type_ : type_;
    if (!test_->knob.empty()) row.knobs["test"] = std::string(test_->knob);
    if (test_->reduces && operation_ != "MPI_SUM")
      row.knobs["redop"] = lower_case(operation_.substr(operation_.find('_') + 1));
    row.calls = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(count_of(words[1], here(), "number of repetitions")));
    for (std::size_t i = 0; i < columns_.size(); ++i) add_figure(row, columns_[i], words[i]);
    row.reported["#bytes"] = size;
    start.rows.push_back(std::move(row));
  }

  /// A call of no bytes may take less than the two decimals that are printed.
  [[nodiscard]] double time_of(const std::string& word) const {
    if (number_of(word) == 0.0) return std::max(1e-3, resolution_of(word));
    return positive_of(word, here(), "time in microseconds");
  }

  void add_figure(ForeignRow& row, const std::string& column, const std::string& word) const {
    const auto number = number_of(word);
    row.reported[column] = number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(word);
    if (column != "defects") return;
    if (!number || *number < 0)
      throw Error(ErrorKind::data,
                  fmt::format("{}: defects has to be a number; found \"{}\"", here(), word));
    row.wrong = *number > 0 ? 1 : 0;
    if (*number > 0) row.wrong_reason = "the suite's own check counts defects";
  }

  std::string path_;
  const ImportOptions& options_;
  std::size_t line_ = 0;
  const ImbTest* test_ = nullptr;  ///< nullptr = none, or one that is unknown here
  std::string version_;
  std::string type_ = "uint8";
  std::string reduction_type_ = "float32";
  std::string operation_ = "MPI_SUM";
  bool ended_ = false;
  std::vector<std::string> left_out_;
  std::vector<std::string> columns_;
  std::size_t comment_line_ = 0;  ///< of the one that ended a benchmark; 0: none since it began
  std::vector<ForeignStart> starts_;
};

}  // namespace

std::vector<ForeignStart> read_imb_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options) {
  return ImbReader(path, options).read(text);
}

}  // namespace dynamiccl
