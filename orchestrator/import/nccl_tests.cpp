#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>

#include "core/error.hpp"
#include "core/text.hpp"
#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Where the columns of one direction of buffers begin, by the heading's names.
constexpr std::array<std::string_view, 2> kTimes{"time", "cputime"};

bool is_time(const std::string& word) {
  return std::find(kTimes.begin(), kTimes.end(), word) != kTimes.end();
}

/// What is said of reduction and root only where it is not the usual.
std::map<std::string, std::string> knobs_of(const std::string& redop, const std::string& root) {
  std::map<std::string, std::string> knobs;
  if (!redop.empty() && redop != "sum" && redop != "none") knobs["redop"] = redop;
  if (!root.empty() && root != "-1" && root != "0") knobs["root"] = root;
  return knobs;
}

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
    std::erase_if(starts_, [](const ForeignStart& start) { return start.rows.empty(); });
    if (starts_.empty()) {
      throw Error(ErrorKind::data,
                  fmt::format("{}: holds no table of nccl-tests: a heading \"# size count type ... "
                              "time algbw busbw\" and rows of numbers below it",
                              path_));
    }
    return std::move(starts_);
  }

 private:
  void read_line(const std::string& line) {
    if (auto heading = heading_of(line); !heading.empty()) {
      // Only very old versions print nothing before the heading.
      if (starts_.empty()) begin();
      columns_ = std::move(heading);
      return;
    }
    if (line.starts_with('#')) return read_comment(line);
    const auto words = words_of(line);
    if (words.size() < 5 || !number_of(words[0]) || !number_of(words[1])) return;
    if (columns_.empty()) return;
    read_row(words);
  }

  void begin() {
    starts_.emplace_back();
    columns_.clear();
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
    auto& start = starts_.back();
    start.source["threads"] = std::stoi(match[1]);
    start.source["gpus_per_thread"] = std::stoi(match[2]);
    start.warmup = std::stoi(match[3]);
    start.iterations = std::stoi(match[4]);
    std::smatch more;
    const int together = std::regex_search(line, more, aggregated) ? std::stoi(more[1]) : 1;
    start.calls = std::int64_t{*start.iterations} * together;
    if (std::regex_search(line, more, validation)) start.verify = std::stoi(more[1]) != 0;
    // Without MPI one process has them all; lines of ranks, where there are any, know better.
    start.ranks = std::stoi(match[1]) * std::stoi(match[2]);
    ranked_ = false;
  }

  void read_rank(const std::smatch& match) {
    auto& start = starts_.back();
    start.source["devices"].push_back(ordered_json{
        {"rank", std::stoi(match[1])}, {"host", match[4].str()}, {"device", match[5].str()}});
    // Groups that a split mask makes measure beside each other: one of them is what is measured.
    if (match[3].matched && std::stoi(match[3]) != 0) return;
    start.ranks = ranked_ ? start.ranks.value_or(0) + 1 : 1;
    ranked_ = true;
  }

  std::string operation() const {
    if (!options_.operation.empty()) return collective_of_program(options_.operation);
    const auto& source = starts_.back().source;
    if (source.contains("program")) return collective_of_program(source["program"]);
    throw Error(ErrorKind::input,
                fmt::format("{}:{}: the table does not name its operation; give --operation, as in "
                            "--operation all_reduce",
                            path_, line_));
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
    const bool stamped = columns_.back() == "timestamp";
    const std::size_t expected = columns_.size() + (stamped ? 1 : 0);
    // A replayed trace has no numbers out of place: the first half of the row is blank.
    const std::size_t half = times.size() == 2 ? times[1] - times[0] : 0;
    const std::size_t skipped = half > 0 && words.size() + half == expected ? half : 0;
    if (words.size() + skipped != expected) {
      throw Error(ErrorKind::data,
                  fmt::format("{}:{}: a row of {} values under a heading of {}: {}", path_, line_,
                              words.size(), columns_.size(), join(words, " ")));
    }
    for (std::size_t direction = skipped > 0 ? 1 : 0; direction < times.size(); ++direction)
      add_row(words, times[direction], skipped, direction == 1);
  }

  void add_row(const std::vector<std::string>& words, std::size_t from, std::size_t skipped,
               bool in_place) {
    const auto time = number_of(words[from - skipped]);
    if (!time) return;  // "N/A": the operation has no such direction
    ForeignRow row;
    row.collective = operation();
    row.size_bytes = std::stoull(words[0]);
    row.datatype = datatype_of(column(words, "type"));
    row.in_place = in_place;
    row.knobs = knobs_of(column(words, "redop"), column(words, "root"));
    row.time_us = *time;
    row.reported = {{"size", std::stoull(words[0])}, {"count", std::stoull(words[1])}};
    for (const char* name : {"type", "redop", "root"}) {
      if (const auto text = column(words, name); !text.empty()) row.reported[name] = text;
    }
    row.reported["in_place"] = in_place;
    row.reported.update(figures(words, from, skipped));
    for (const char* name : {"#wrong", "error"}) {
      if (row.reported.contains(name) && row.reported[name].is_number())
        row.wrong = static_cast<std::uint64_t>(row.reported[name].get<double>());
    }
    // Before "#wrong" there was "error": the largest difference, not a count.
    if (row.reported.contains("error")) row.wrong.reset();
    starts_.back().rows.push_back(std::move(row));
  }

  std::string path_;
  const ImportOptions& options_;
  std::size_t line_ = 0;
  bool ranked_ = false;
  std::vector<std::string> columns_;
  std::vector<ForeignStart> starts_;
};

/// Variables that steer the library; the file holds the whole environment, secrets too.
bool may_be_kept(const std::string& name) {
  if (name == "CUDA_VISIBLE_DEVICES") return true;
  if (!name.starts_with("NCCL_")) return false;
  static const std::regex secret("TOKEN|KEY|SECRET|PASS|AUTH|CRED");
  return !std::regex_search(name, secret);
}

json kept_variables(const json& document) {
  json kept = json::object();
  if (!document.contains("env") || !document["env"].is_array()) return kept;
  for (const auto& entry : document["env"]) {
    if (!entry.is_string()) continue;
    const auto text = entry.get<std::string>();
    const auto equals = text.find('=');
    if (equals != std::string::npos && may_be_kept(text.substr(0, equals)))
      kept[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return kept;
}

/// 22703 is NCCL 2.27.3.
std::string nccl_version(int code) {
  return code < 10000 ? fmt::format("{}.{}.{}", code / 1000, code / 100 % 10, code % 100)
                      : fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void read_json_config(const json& document, ForeignStart& start) {
  const json config = document.value("config", json::object());
  start.warmup = config.value("warmup_iters", 0);
  start.iterations = config.value("iterations", 0);
  start.calls = std::max<std::int64_t>(
      1, std::int64_t{*start.iterations} * config.value("aggregated_iterations", 1));
  start.verify = config.value("validation", 0) != 0;
  const auto devices = config.value("devices", json::array());
  start.ranks = std::max<int>(1, static_cast<int>(devices.size())) * config.value("nthreads", 1) *
                config.value("ngpus", 1);
  for (const auto& device : devices) {
    start.source["devices"].push_back(ordered_json{{"rank", device.value("rank", 0)},
                                                   {"host", device.value("hostname", "")},
                                                   {"device", device.value("device_info", "")}});
  }
}

std::string text_of(const json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string() ? std::string(trim(found->get<std::string>()))
                                                  : "";
}

void add_json_row(const json& row, const char* direction, const std::string& operation,
                  ForeignStart& start) {
  const auto body = row.find(direction);
  if (body == row.end() || !body->is_object()) return;
  const json time = body->contains("time") ? (*body)["time"] : body->value("cpu_time", json());
  if (!time.is_number()) return;
  ForeignRow made;
  made.collective = operation;
  made.size_bytes = row.at("size").get<std::uint64_t>();
  made.datatype = datatype_of(text_of(row, "type"));
  made.in_place = std::string_view(direction) == "in_place";
  made.knobs = knobs_of(text_of(row, "redop"), text_of(row, "root"));
  made.time_us = time.get<double>();
  if (const auto wrong = body->value("nwrong", json()); wrong.is_number())
    made.wrong = static_cast<std::uint64_t>(wrong.get<double>());
  made.reported = {{"size", row.at("size")}, {"count", row.value("count", json())}};
  for (const char* name : {"type", "redop", "root"}) made.reported[name] = text_of(row, name);
  made.reported["in_place"] = made.in_place;
  for (const auto& [name, value] : body->items()) made.reported[name] = value;
  const std::string each = std::string(direction) + "_per_iter";
  if (row.contains(each)) made.reported["per_iteration"] = row[each];
  start.rows.push_back(std::move(made));
}

}  // namespace

std::vector<ForeignStart> read_nccl_tests_text(const std::string& text, const std::string& path,
                                               const ImportOptions& options) {
  return TextReader(path, options).read(text);
}

std::vector<ForeignStart> read_nccl_tests_json(const std::string& text, const std::string& path,
                                               const ImportOptions& options) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("results") || !document["results"].is_array()) {
    throw Error(ErrorKind::data,
                fmt::format("{}: is no document of nccl-tests -J: it has no list \"results\"{}",
                            path, document.is_discarded() ? " and is no JSON" : ""));
  }
  ForeignStart start;
  try {
    start.argv = document.value("args", std::vector<std::string>{});
    start.environment = kept_variables(document);
    if (document.contains("nccl_version"))
      start.source["nccl_library"] = nccl_version(document["nccl_version"].get<int>());
    for (const char* key : {"start_time", "end_time", "average_bus_bandwidth"}) {
      if (document.contains(key)) start.source[key] = document[key];
    }
    if (!start.argv.empty()) start.source["program"] = start.argv.front();
    read_json_config(document, start);
    for (const auto& row : document["results"]) {
      const std::string program = !options.operation.empty() ? options.operation
                                  : !start.argv.empty()      ? start.argv.front()
                                                             : text_of(row, "experiment_name");
      for (const char* direction : {"out_of_place", "in_place"})
        add_json_row(row, direction, collective_of_program(program), start);
    }
  } catch (const json::exception& error) {
    throw Error(ErrorKind::data,
                fmt::format("{}: is no document of nccl-tests -J: {}", path, error.what()));
  }
  if (start.rows.empty())
    throw Error(ErrorKind::data, path + ": its list \"results\" holds no times");
  return {std::move(start)};
}

}  // namespace dynamiccl
