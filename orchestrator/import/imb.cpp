#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "core/vocabulary/text.hpp"
#include "orchestrator/import/suite_reader.hpp"
#include "profiles/detect/probes/environment_probe.hpp"

namespace dynamiccl {
namespace {

constexpr std::uint64_t kMostProcessesOfSuite = 1'000'000'000;

constexpr std::array kImbTests{
    SuiteTest{"Allreduce", "allreduce", false, true, ""},
    SuiteTest{"Reduce", "reduce", false, true, ""},
    SuiteTest{"Reduce_scatter", "reduce_scatter", true, true, ""},
    SuiteTest{"Reduce_scatter_block", "reduce_scatter", true, true, "block"},
    SuiteTest{"Bcast", "broadcast", false, false, ""},
    SuiteTest{"Allgather", "allgather", true, false, ""},
    SuiteTest{"Allgatherv", "allgather", true, false, "v"},
    SuiteTest{"Gather", "gather", true, false, ""},
    SuiteTest{"Gatherv", "gather", true, false, "v"},
    SuiteTest{"Scatter", "scatter", true, false, ""},
    SuiteTest{"Scatterv", "scatter", true, false, "v"},
    SuiteTest{"Alltoall", "alltoall", true, false, ""},
    SuiteTest{"Alltoallv", "alltoall", true, false, "v"},
    SuiteTest{"PingPong", "sendrecv", false, false, ""},
    SuiteTest{"PingPing", "sendrecv", false, false, "PingPing"},
    SuiteTest{"Sendrecv", "sendrecv", false, false, "Sendrecv"},
    SuiteTest{"Exchange", "sendrecv", false, false, "Exchange"}};

/// Before 2019 Update 1 the sizes of Reduce_scatter were those of the whole message.
constexpr SuiteTest kReduceScatterOfTheWhole{"Reduce_scatter", "reduce_scatter", false, true, ""};

/// The version in "Intel(R) MPI Benchmarks 2019 Update 1, MPI-1 part" as 2019.1, in "... 2021.11"
/// as 2021.11; nullopt for a line without one.
std::optional<std::pair<int, int>> version_in(const std::string& line) {
  std::vector<int> numbers;
  for (std::size_t at = line.find("Benchmark"); at < line.size() && line[at] != ',';) {
    if (std::isdigit(static_cast<unsigned char>(line[at])) == 0) {
      ++at;
      continue;
    }
    int number = 0;
    for (; at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0; ++at)
      number = std::min(99999, 10 * number + (line[at] - '0'));
    numbers.push_back(number);
  }
  if (numbers.empty()) return std::nullopt;
  return std::pair(numbers[0], numbers.size() > 1 ? numbers[1] : 0);
}

class ImbReader : public SuiteReader {
 public:
  ImbReader(std::string path, const ImportOptions& options)
      : SuiteReader(std::move(path), options) {
    size_name_ = "#bytes";
    prints_zero_ = true;
  }

  std::vector<ForeignStart> read_all(const std::string& text) {
    auto starts = read(text,
                       "the Intel MPI Benchmarks: a line \"# Benchmarking ...\", \"# #processes = "
                       "N\", a heading \"#bytes #repetitions t...\" and rows");
    if (!ended_)
      starts.back().cut_off = fmt::format(
          "after its row of {} bytes there is no \"# All processes entering MPI_Finalize\", with "
          "which the suite ends",
          starts.back().rows.back().reported["#bytes"].dump());
    return starts;
  }

 private:
  bool read_title(const std::string& line) override {
    if (!line.starts_with('#')) return false;
    const auto text =
        join(words_of(line.substr(std::min(line.find_first_not_of("# \t"), line.size()))), " ");
    if (text.find("MPI Benchmark") != std::string::npos) {
      version_ = text;
      program_ = {};
      launched_ = false;
      end_table();
    } else if (text.starts_with("All processes entering")) {
      ended_ = true;
      end_table();
    } else if (text.starts_with("Benchmarking ")) {
      begin(words_of(text.substr(13)));
    } else {
      return false;
    }
    in_command_ = false;
    return true;
  }

  void begin(const std::vector<std::string>& words) {
    ended_ = false;
    const std::string told = words.empty() ? "" : words.front();
    // Several groups at once; "#processes" is then their line's.
    const auto title = told.starts_with("Multi-") ? told.substr(6) : told;
    const auto* test = test_titled(kImbTests, title);
    if (test == nullptr) return leave_out(told);
    if (title == "Reduce_scatter") {
      const auto version = version_in(version_);
      if (!version)
        return leave_out(
            "Reduce_scatter, whose sizes are of one rank's part from version 2019 Update 1 on and "
            "of all before, without a line that names the version");
      if (*version < std::pair(2019, 1)) test = &kReduceScatterOfTheWhole;
    }
    begin_test(*test, test->reduces ? reduction_type_ : type_);
    auto& start = starts_.back();
    start.source["test"] = told;
    if (!version_.empty()) start.source["version"] = version_;
    // A program measures all its benchmarks with the same settings.
    if (!launched_) launch_.begin(program_);
    launched_ = true;
    start.settings = program_.settings;
    start.hidden = program_.hidden;
    start.command = program_.command;
    start.banner = program_.banner;
    start.argv = recorded_command(program_.argv);
    start.settings.merge(options_in(program_.argv));
  }

  void read_comment(const std::string& text) override {
    const auto value = [&](std::string_view key) -> std::optional<std::string> {
      const auto separator = text.find_first_of("=:", key.size());
      if (!text.starts_with(key) || separator == std::string::npos) return std::nullopt;
      return std::string(trim(text.substr(separator + 1)));
    };
    if (text.starts_with("Calling sequence was")) {
      in_command_ = true;
    } else if (text.starts_with("M")) {
      in_command_ = false;
      if (const auto reduced = value("MPI_Datatype for reductions"))
        reduction_type_ = datatype_of(*reduced);
      else if (const auto bytes = value("MPI_Datatype"))
        type_ = datatype_of(*bytes);
      else if (const auto operation = value("MPI_Op"))
        redop_ =
            *operation == "MPI_SUM" ? "" : lower_case(operation->substr(operation->find('_') + 1));
      else if (test_ != nullptr)
        starts_.back().settings["said." + text] = "1";
    } else if (in_command_) {
      for (auto& word : words_of(text)) program_.argv.push_back(std::move(word));
    } else if (test_ != nullptr) {
      read_setting(text);
    }
  }

  void read_setting(const std::string& text) {
    auto& start = starts_.back();
    const auto words = words_of(text);
    if (const auto place = text.find("#processes"); place != std::string::npos) {
      const auto equals = text.find('=', place);
      const auto count = words_of(equals == std::string::npos ? "" : text.substr(equals + 1));
      auto digits = count.empty() ? "" : count.front();
      if (digits.ends_with(';')) digits.pop_back();
      start.ranks =
          static_cast<int>(count_of(digits, here(), "number of processes", kMostProcessesOfSuite));
      if (const auto threads = text.find("threads:"); threads != std::string::npos)
        start.settings["threads"] = trim(text.substr(threads + 8));
    } else if (words.size() > 4 && text.find("groups of") != std::string::npos) {
      // "( 2 groups of 2 processes each running simultaneous )"
      start.ranks = static_cast<int>(
          count_of(words[4], here(), "number of processes of a group", kMostProcessesOfSuite));
      start.settings["groups"] = words[1];
    } else if (words[0] == "Group" || std::all_of(words.begin(), words.end(), number_of)) {
      start.settings["map"] += join(words, " ") + "; ";
    } else if (text.find("additional process") == std::string::npos) {
      start.settings["said." + text] = "1";
    }
  }

  [[nodiscard]] std::vector<std::string> columns_in(const std::string& line) const override {
    auto words = words_of(line);
    if (words[0] != "#bytes" && words[0] != "#repetitions" &&
        !(words[0] == "Group" && words.size() > 1 && words[1].starts_with('#')))
      return {};
    const std::size_t size = words[0] == "Group" ? 1 : 0;
    if (test_ != nullptr &&
        (words.size() < size + 3 || words[size] != "#bytes" || words[size + 1] != "#repetitions"))
      refuse(
          fmt::format("a heading is \"#bytes #repetitions t...\"; found \"{}\"", join(words, " ")));
    return words;
  }

  void read_second_heading() override { refuse("a second heading in one benchmark"); }

  std::string version_;
  ForeignStart program_;     ///< what holds for all benchmarks of one program
  bool launched_ = false;    ///< it has the lines of its launcher
  bool in_command_ = false;  ///< between "Calling sequence was" and what follows it
  std::string type_ = "uint8";
  std::string reduction_type_ = "float32";
  bool ended_ = false;
};

}  // namespace

std::vector<ForeignStart> read_imb_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options) {
  return ImbReader(path, options).read_all(text);
}

}  // namespace dynamiccl
