#include "orchestrator/import/formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/import/log_lines.hpp"
#include "orchestrator/import/log_parts.hpp"
#include "orchestrator/import/suite_reader.hpp"

namespace dynamiccl {
namespace {

/// What another program's output is known by, and why none of its figures is read.
struct UnreadProgram {
  std::string_view mark;
  std::string_view what;
};

constexpr std::array kUnread{
    UnreadProgram{"\"coll_perf\"",
                  "the NCCL Inspector: times of single calls in a job by rank, and no table of a "
                  "benchmark"},
    UnreadProgram{"COMMS-RES-", "the PARAM communication benchmark (comms.py)"},
    UnreadProgram{"Comm. Op ", "DeepSpeed's communication logger"},
    UnreadProgram{"Memory type: ", "ucc_perftest"},
    UnreadProgram{"#bytes #iterations",
                  "perftest (ib_write_bw and its kin): one link, and no "
                  "collective"},
    UnreadProgram{"Message size: # iterations", "ucx_perftest: one link, and no collective"},
    UnreadProgram{"+--------------+--", "ucx_perftest: one link, and no collective"},
    UnreadProgram{"[ ID] Interval", "iperf: one link, and no collective"},
    UnreadProgram{"Running nvbandwidth", "nvbandwidth: copies, and no collective"},
    UnreadProgram{"P2P Connectivity Matrix", "p2pBandwidthLatencyTest: copies, and no collective"},
    UnreadProgram{"Algorithm: new_", "Gloo's own benchmark"},
    UnreadProgram{"# Benchmarking: ", "the benchmark of oneCCL"},
    UnreadProgram{"NCCL INFO ",
                  "NCCL's own log, which holds no times: give the output of the "
                  "benchmark that wrote it"}};

std::string unread_program(const std::string& text) {
  std::string joined;
  for (const auto& line : split(text, '\n')) {
    joined += join(words_of(line.substr(0, 400)), " ") + " \n";
    if (joined.size() > 1'000'000) break;
  }
  for (const auto& program : kUnread)
    if (joined.find(program.mark) != std::string::npos) return std::string(program.what);
  return "";
}

/// The formats of text tables whose headings or titles stand in a text.
std::set<std::string> formats_in(const std::string& text, const std::string& path) {
  std::set<std::string> formats;
  for (const auto& line : log_lines(text, path)) {
    const std::string trimmed(trim(line.text));
    const auto place = heading_place(trimmed);
    if (place != std::string::npos) {
      const auto words = words_of(trimmed.substr(place, 64));
      const bool imb =
          words.front() == "#bytes" || words.front() == "#repetitions" || words.front() == "Group";
      const bool nccl = trimmed.find("busbw") != std::string::npos;
      if (imb || nccl) formats.insert(imb ? "imb" : "nccl-tests");
    } else if (const auto title = osu_title(trimmed);
               title && (!title->library.empty() || trimmed.starts_with('#'))) {
      formats.insert("osu");
    } else if (trimmed.starts_with('#') && trimmed.find("nThread ") != std::string::npos &&
               trimmed.find(" nGpus ") != std::string::npos) {
      formats.insert("nccl-tests");
    }
  }
  return formats;
}

}  // namespace

const std::vector<std::string>& import_formats() {
  static const std::vector<std::string> formats{"auto", "nccl-tests", "nccl-tests-json", "osu",
                                                "imb",  "dynamiccl",  "decisions"};
  return formats;
}

std::string import_format_of(const std::string& text, const std::string& path) {
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool braced = first != std::string::npos && text[first] == '{';
  if (braced && text.substr(first, text.find('\n', first) - first).find("\"propensity\"") !=
                    std::string::npos)
    return "decisions";
  // A document of nccl-tests is one long line; a line of metadata before a table is not the table.
  if (braced) {
    const auto document = json_or_discarded(text);
    if (document.is_object() && document.contains("results")) return "nccl-tests-json";
    // Where it cannot be parsed, its reader says why; Python writes other quotes.
    if (document.is_discarded() && text.compare(first, 2, "{\"") == 0 &&
        text.find_first_not_of(" \t\r\n", text.find('\n', first)) == std::string::npos)
      return "nccl-tests-json";
  }
  const auto formats = formats_in(text, path);
  if (formats.size() == 1) return *formats.begin();
  if (formats.size() > 1)
    throw Error(ErrorKind::data,
                fmt::format("{}: holds tables of {}; import each by itself, with --format or in a "
                            "file of its own, so that none is lost",
                            path, join({formats.begin(), formats.end()}, " and ")));
  if (const auto known = unread_program(text); !known.empty())
    throw Error(ErrorKind::data,
                fmt::format("{}: is output of {}; what can be imported is the text or JSON of "
                            "nccl-tests or rccl-tests and the text of OSU micro-benchmarks or of "
                            "the Intel MPI Benchmarks",
                            path, known));
  if (braced) return "nccl-tests-json";
  throw Error(
      ErrorKind::data,
      fmt::format("{}: is none of what can be imported: the text or JSON of nccl-tests or "
                  "rccl-tests, the text of OSU micro-benchmarks or of the Intel MPI Benchmarks, a "
                  "DynamICCL database, the choices of a leader; if it is one of them all the same, "
                  "name it with --format {}",
                  path, join({import_formats().begin() + 1, import_formats().end()}, ", ")));
}

std::vector<ForeignStart> read_starts(const std::string& format, const std::string& text,
                                      const std::string& path, const ImportOptions& options) {
  if (format == "osu") return read_osu_text(text, path, options);
  if (format == "imb") return read_imb_text(text, path, options);
  if (format == "nccl-tests-json") return read_nccl_tests_json(text, path, options);
  return read_nccl_tests_text(text, path, options);
}

}  // namespace dynamiccl
