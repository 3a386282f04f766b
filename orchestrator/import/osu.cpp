#include <fmt/format.h>

#include <array>
#include <cctype>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "orchestrator/import/suite_reader.hpp"

namespace dynamiccl {
namespace {

constexpr std::array kTests{
    SuiteTest{"Latency", "sendrecv", false, false, ""},
    // It sends a window of messages at once, which is not the time of one there and back.
    SuiteTest{"Bandwidth", "sendrecv", false, false, "Bandwidth"},
    SuiteTest{"Bi-Directional Bandwidth", "sendrecv", false, false, "Bi-Directional Bandwidth"},
    SuiteTest{"Allreduce Latency", "allreduce", false, true, ""},
    SuiteTest{"Reduce Latency", "reduce", false, true, ""},
    SuiteTest{"Reduce_scatter Latency", "reduce_scatter", false, true, ""},
    SuiteTest{"Broadcast Latency", "broadcast", false, false, ""},
    SuiteTest{"Bcast Latency", "broadcast", false, false, ""},
    SuiteTest{"Allgather Latency", "allgather", true, false, ""},
    SuiteTest{"Gather Latency", "gather", true, false, ""},
    SuiteTest{"Scatter Latency", "scatter", true, false, ""},
    SuiteTest{"All-to-All Personalized Exchange Latency", "alltoall", true, false, ""},
    SuiteTest{"Alltoall Latency", "alltoall", true, false, ""}};

class OsuReader : public SuiteReader {
 public:
  using SuiteReader::SuiteReader;

 private:
  bool read_title(const std::string& line) override {
    if (const auto title = osu_title(line)) {
      begin(*title);
      return true;
    }
    // One program measures several datatypes, each with rows of its own.
    if (test_ == nullptr || starts_.back().rows.empty() || !line.starts_with("# Datatype:"))
      return false;
    begin_table();
    read_comment(line.substr(2));
    return true;
  }

  void begin(const OsuTitle& title) {
    const auto* test = title.library.empty() ? nullptr : test_titled(kTests, title.test);
    if (test == nullptr) return leave_out(title.test);
    if (test_ != nullptr && starts_.back().rows.empty() && title_.test == title.test && !others_)
      refuse_separate();
    title_ = title;
    test_ = test;
    datatype_known_ = false;
    begin_table();
  }

  void begin_table() {
    // Neither is printed before version 7: the programs' own.
    begin_test(*test_, datatype_known_ ? datatype_ : test_->reduces ? "float32" : "char");
    size_name_ = "size";
    others_ = false;
    auto& start = starts_.back();
    start.source["version"] = title_.version;
    start.source["test"] = title_.test;
    start.source["library"] = title_.library;
    if (!datatype_known_) start.source["assumed_datatype"] = datatype_;
    launch_.begin(start);
    start.ranks = test_->collective == "sendrecv" ? 2 : launch_.processes();
  }

  void read_other(const std::string& line) override {
    others_ = true;
    if (const auto error = line.find("DATA VALIDATION ERROR"); error != std::string::npos) {
      const auto size = line.find("message size ", error);
      const auto words =
          size == std::string::npos ? std::vector<std::string>{} : words_of(line.substr(size + 13));
      std::optional<std::uint64_t> told;
      if (!words.empty()) {
        auto digits = words[0].substr(0, words[0].find_first_not_of("0123456789"));
        if (!digits.empty()) told = count_of(digits, here(), "size in bytes");
      }
      failures_.emplace_back(told, line_);
    }
    SuiteReader::read_other(line);
  }

  /// Column titles hold single blanks and are set apart by more.
  [[nodiscard]] std::vector<std::string> columns_in(const std::string& line) const override {
    if (!line.starts_with('#') || !trim(line.substr(1)).starts_with("Size")) return {};
    const std::string text(trim(line.substr(1)));
    std::vector<std::string> columns;
    for (std::size_t at = 0; at < text.size();) {
      auto end = at;
      while (end < text.size() && text[end] != '\t' && text.compare(end, 2, "  ") != 0) ++end;
      columns.emplace_back(trim(text.substr(at, end - at)));
      at = std::min(text.find_first_not_of(" \t", end), text.size());
    }
    const auto name = without_blanks(lower_case(columns.front()));
    if (test_ != nullptr && name != "size" && name != "size(b)" && name != "size(bytes)")
      refuse(fmt::format("sizes are in bytes, under \"Size\"; found the heading \"{}\"",
                         columns.front()));
    return columns;
  }

  void read_second_heading() override {
    if (starts_.back().rows.empty()) refuse_separate();
    leave_out("a table without title");
  }

  /// What a test says of itself above its rows tells it from the same test done otherwise.
  void read_comment(const std::string& text) override {
    if (test_ == nullptr) return read_other(text);
    auto& start = starts_.back();
    if (text.starts_with("Datatype:")) {
      auto name = std::string(trim(text.substr(9)));
      while (!name.empty() && name.back() == '.') name.pop_back();
      datatype_ = datatype_of(name);
      datatype_known_ = true;
      start.source.erase("assumed_datatype");
      return;
    }
    const auto words = words_of(text);
    const auto buffer = [&](std::string_view side) -> std::string {
      for (std::size_t i = 0; i + 3 < words.size(); ++i)
        if (words[i] == side && words[i + 1] == "Buffer") return lower_case(words[i + 3]);
      return "";
    };
    const auto send = buffer("Send");
    const auto receive = buffer("Receive");
    if (!send.empty() && !receive.empty()) {
      start.settings["buffers"] = send + "-" + receive;
      return;
    }
    if (const auto count = processes_in(text); count && !start.ranks) start.ranks = count;
    const auto colon = text.find(':');
    if (colon == std::string::npos) {
      start.settings["said." + text] = "1";
      return;
    }
    std::string name(trim(text.substr(0, colon)));
    std::replace(name.begin(), name.end(), ' ', '_');
    start.settings[lower_case(name)] = trim(text.substr(colon + 1));
  }

  [[noreturn]] void refuse_separate() const {
    refuse(fmt::format(
        "the job ran as separate programs that do not know each other: a second one begins \"{}\" "
        "before the first has printed a row of it. Start the ranks with the launcher of the MPI "
        "that OSU was built with, or import each program's output by itself",
        title_.test));
  }

  OsuTitle title_;
  bool others_ = false;  ///< lines of other programs since the table began
  bool datatype_known_ = false;
};

}  // namespace

std::optional<OsuTitle> osu_title(const std::string& line) {
  // Whoever pastes a title into a page makes it a heading or bold.
  constexpr std::string_view kMarks = "#*_` \t";
  const auto first = line.find_first_not_of(kMarks);
  if (first == std::string::npos) return std::nullopt;
  const auto text = line.substr(first, line.find_last_not_of(kMarks) + 1 - first);
  const bool comment = line[0] == '#';
  const auto end = text.find(" Test");
  const bool suite = text.starts_with("OSU ") || text.starts_with("OMB");
  if (end == std::string::npos) return std::nullopt;
  const auto behind = words_of(text.substr(end + 5));
  const bool version = !behind.empty() && behind[0].size() > 1 && behind[0][0] == 'v' &&
                       std::isdigit(static_cast<unsigned char>(behind[0][1])) != 0;
  if (!suite && !(comment && version)) return std::nullopt;
  OsuTitle title;
  title.version = version ? behind[0].substr(1) : "";
  title.test = text.substr(0, end);
  if (!text.starts_with("OSU ") || !version) return title;
  const auto words = words_of(title.test);
  if (words.size() < 3) return title;
  const auto library = words[1].substr(0, words[1].find('-'));
  if (library != "MPI" && library != "NCCL" && library != "RCCL") return title;
  title.library = words[1];
  title.test = join({words.begin() + 2, words.end()}, " ");
  return title;
}

std::vector<ForeignStart> read_osu_text(const std::string& text, const std::string& path,
                                        const ImportOptions& options) {
  return OsuReader(path, options)
      .read(text,
            "the OSU micro-benchmarks: a line \"# OSU MPI ... Test v...\", a heading \"# Size "
            "...\" and rows below it, of Latency, Bandwidth and the blocking collectives");
}

}  // namespace dynamiccl
