#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchestrator/import/foreign_table.hpp"
#include "orchestrator/import/launch_lines.hpp"

namespace dynamiccl {

/// A test of a suite of MPI benchmarks by the name in its title.
struct SuiteTest {
  std::string_view title;
  std::string_view collective;
  /// Its sizes are one rank's part; ours, as nccl-tests', all parts together.
  bool size_per_rank;
  bool reduces;
  std::string_view knob;  ///< what tells it from the collective's usual form; "" = it is that
};

/// Reads what suites of MPI benchmarks print: a title, lines about the test, a heading and a row
/// for each size. OSU and IMB derive from it what their titles, comments and headings look like.
class SuiteReader {
 public:
  SuiteReader(std::string path, const ImportOptions& options)
      : path_(std::move(path)), options_(options) {}
  virtual ~SuiteReader() = default;
  SuiteReader(const SuiteReader&) = delete;
  SuiteReader& operator=(const SuiteReader&) = delete;

  /// @param form "the OSU micro-benchmarks: a line ...", for the message
  /// @throws Error(data) with file:line, also when there is no table
  std::vector<ForeignStart> read(const std::string& text, std::string_view form);

 protected:
  /// Begins a test, or ends all, where the line is a title.
  virtual bool read_title(const std::string& line) = 0;
  /// The columns where the line is a heading.
  [[nodiscard]] virtual std::vector<std::string> columns_in(const std::string& line) const = 0;
  /// A comment before the test's first row.
  virtual void read_comment(const std::string& text) = 0;
  /// A heading below the rows of another.
  virtual void read_second_heading() = 0;
  /// A line of other programs.
  virtual void read_other(const std::string& line) { launch_.read(line, line_); }

  void begin_test(const SuiteTest& test, const std::string& datatype);
  void leave_out(const std::string& what);
  void end_table();
  [[nodiscard]] std::string here() const;
  [[noreturn]] void refuse(const std::string& why) const;

  std::string path_;
  const ImportOptions& options_;
  std::size_t line_ = 0;
  const SuiteTest* test_ = nullptr;  ///< nullptr = none, or one that is left out
  std::string datatype_;
  std::string redop_;         ///< "" = the sum
  bool prints_zero_ = false;  ///< a time below its last digit is printed as 0
  std::string size_name_;     ///< under which a row reports its size
  std::vector<std::string> columns_;
  LaunchLines launch_;
  std::vector<ForeignStart> starts_;
  /// What the program says of its own check: the size that failed, nullopt = it does not say which.
  std::vector<std::pair<std::optional<std::uint64_t>, std::size_t>> failures_;

 private:
  void read_line(const std::string& line);
  void read_heading(std::vector<std::string> columns);
  [[nodiscard]] bool is_row(const std::vector<std::string>& words) const;
  bool read_sample_without_time(const std::vector<std::string>& words);
  void note_lost_row(const std::vector<std::string>& words);
  void read_row(const std::vector<std::string>& words);
  [[nodiscard]] std::uint64_t parts() const;
  void require_growth(std::uint64_t size, std::uint64_t group);
  void set_time(ForeignRow& row, const std::vector<std::string>& words, std::uint64_t size) const;
  void add_value(ForeignRow& row, const std::string& column, const std::string& word);
  [[nodiscard]] std::vector<std::size_t> time_columns() const;
  void apply_failures();

  std::size_t size_column_ = 0;
  std::size_t note_line_ = 0;  ///< of a comment below rows; 0 = none since the heading
  std::string note_;
  bool told_lost_ = false;  ///< rows that belong to no table are reported once for each title
  std::optional<std::pair<std::uint64_t, std::uint64_t>> last_row_;  ///< (size, group)
  std::vector<std::string> left_out_;
};

/// "OSU MPI-CUDA Allreduce Latency Test v5.9" in its parts.
struct OsuTitle {
  std::string library;  ///< "MPI-CUDA"; "" where the form is another
  std::string test;     ///< "Allreduce Latency", or all that stands before "Test"
  std::string version;
};

/// The title of a test in a line, of OSU's or a like suite; nullopt where there is none.
std::optional<OsuTitle> osu_title(const std::string& line);

/// The test of that title; nullptr = unknown here.
const SuiteTest* test_titled(std::span<const SuiteTest> tests, std::string_view title);

}  // namespace dynamiccl
